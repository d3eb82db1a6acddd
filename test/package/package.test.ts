// The npm package as a stranger gets it: packed, installed in an empty folder, run from there.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ROOT } from '../support/command.ts';

const folder = mkdtempSync(join(tmpdir(), 'weir-package-'));
afterAll(() => rmSync(folder, { recursive: true }));

const run = (command: string, parameters: string[], cwd: string) =>
  execFileSync(command, parameters, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });

describe('the package', () => {
  beforeAll(() => {
    run('npm', ['pack', '--ignore-scripts', '--pack-destination', folder], ROOT.pathname);
    const [tarball] = readdirSync(folder).filter((name) => name.endsWith('.tgz'));
    writeFileSync(join(folder, 'package.json'), '{"private":true,"type":"module"}');
    run('npm', ['install', '--no-audit', '--no-fund', '--prefer-offline', `./${tarball}`], folder);
  });

  it('installs a command that analyses the sample it brings', () => {
    const output = run(
      join(folder, 'node_modules/.bin/weir'),
      ['analyze', 'node_modules/weir-gpu/samples/gpt2xl-oom.pickle.gz', '--no-smallest'],
      folder,
    );
    expect(output).toContain('Cause: fragmentation');
    expect(output).toContain('export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True');
  });

  it('is a library with types', () => {
    writeFileSync(
      join(folder, 'example.js'),
      `import { readFileSync } from 'node:fs';
       import { gunzipSync } from 'node:zlib';
       import { chooseAllocators, readRecording, replay, SimulatedBackend } from 'weir-gpu';
       const [trace] = readRecording(gunzipSync(readFileSync('node_modules/weir-gpu/samples/vgg16-b100.native.pickle.gz'))).traces;
       for (const { name, create } of chooseAllocators('pytorch,expandable')) {
         console.log(name, replay(trace, create, { backend: new SimulatedBackend() }).peakReserved);
       }`,
    );
    expect(run(process.execPath, ['example.js'], folder)).toBe('pytorch 16882073600\nexpandable 11603542016\n');
    expect(readdirSync(join(folder, 'node_modules/weir-gpu/dist'))).toContain('index.d.ts');
  });

  it('does what docs/library.md shows', () => {
    const examples = [...readFileSync(new URL('docs/library.md', ROOT), 'utf8').matchAll(/```js\n([\s\S]*?)```/g)].map(
      (match) => match[1]!,
    );
    expect(examples).toHaveLength(3);
    for (const [index, code] of examples.entries()) writeFileSync(join(folder, `shown-${index}.js`), code);
    if (process.platform === 'linux') {
      const pool = run(process.execPath, ['shown-0.js', 'host'], folder);
      expect(pool).toMatch(/^stitched 60 MiB; last word feed\nout of memory: 32 MiB requested, .*\n128 MiB reserved\n$/);
    }
    const replayed = run(process.execPath, ['shown-1.js', 'node_modules/weir-gpu/samples/vgg16-b100.native.pickle.gz'], folder);
    expect(replayed).toContain('expandable 11603542016 0\n');
    expect(replayed).toContain('What each allocator would have needed');
  });

  it('brings the page', () => {
    expect(readdirSync(join(folder, 'node_modules/weir-gpu/dist/web')).sort()).toEqual([
      'app.css',
      'app.js',
      'example.pickle.gz',
      'icon.svg',
      'index.html',
      'worker.js',
    ]);
    const sample = 'node_modules/weir-gpu/samples/vgg16-b100.native.pickle.gz';
    run(join(folder, 'node_modules/.bin/weir'), ['report', sample, '-o', 'page.html'], folder);
    expect(readdirSync(folder)).toContain('page.html');
  });

  it('brings the native sources to compile, but not those for tests', () => {
    const native = readdirSync(join(folder, 'node_modules/weir-gpu/dist/native'));
    expect(native).toEqual(expect.arrayContaining(['backend', 'build.json', 'engine', 'engine.c', 'engine.h', 'runtime', 'torch']));
    expect(native).not.toContain('testing');
  });

  it('leaves sources, tests and benchmarks at home', () => {
    expect(readdirSync(join(folder, 'node_modules/weir-gpu')).sort()).toEqual([
      'CHANGELOG.md',
      'LICENSE',
      'NOTICE',
      'README.md',
      'bin',
      'dist',
      'docs',
      'package.json',
      'samples',
    ]);
  });
});
