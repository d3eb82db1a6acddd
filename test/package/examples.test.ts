// The programs in the documentation type-check against the built library, under the strictest usual options.
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { ROOT } from '../support/command.ts';

const folder = mkdtempSync(join(tmpdir(), 'weir-examples-'));
afterAll(() => rmSync(folder, { recursive: true }));

const from = (path: string) => join(ROOT.pathname, path);
const TSC = from('node_modules/typescript/bin/tsc');
const OPTIONS = {
  ...{ strict: true, noUncheckedIndexedAccess: true, exactOptionalPropertyTypes: true, noPropertyAccessFromIndexSignature: true },
  // Without this, faults in the declarations of Weir itself would pass.
  skipLibCheck: false,
  ...{ target: 'es2022', module: 'nodenext', types: ['node'], noEmit: true },
};

const documents = ['README.md', ...readdirSync(from('docs')).map((name) => `docs/${name}`)].filter((name) => name.endsWith('.md'));
const examples = documents.flatMap((document) =>
  [...readFileSync(from(document), 'utf8').matchAll(/```(?:js|ts|javascript|typescript)\n([\s\S]*?)```/g)].map(
    ([, code], index) => [`${document.replaceAll(/\W/g, '-')}-${index}.ts`, code!] as const,
  ),
);

/** What tsc says of programs that import `weir` as an installed package. */
function check(name: string, programs: Readonly<Record<string, string>>) {
  const project = join(folder, name);
  mkdirSync(join(project, 'node_modules/@types'), { recursive: true });
  symlinkSync(ROOT.pathname, join(project, 'node_modules/weir-gpu'));
  for (const types of ['@types/node', 'undici-types']) symlinkSync(from(`node_modules/${types}`), join(project, 'node_modules', types));
  writeFileSync(join(project, 'package.json'), '{"private":true,"type":"module"}');
  writeFileSync(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions: OPTIONS }));
  for (const [file, code] of Object.entries(programs)) writeFileSync(join(project, file), code);
  return spawnSync(process.execPath, [TSC, '-p', project], { encoding: 'utf8' });
}

describe('the programs in the documentation', () => {
  it('are found', () => {
    expect(examples.map(([name]) => name)).toEqual(['docs-library-md-0.ts', 'docs-library-md-1.ts', 'docs-library-md-2.ts']);
    for (const [, code] of examples) expect(code).toContain("from 'weir-gpu'");
  });

  it('type-check', () => {
    const { status, stdout } = check('shown', Object.fromEntries(examples));
    expect([status, stdout]).toEqual([0, '']);
  });

  it('are checked with types: a wrong program is not accepted', () => {
    const { status, stdout } = check('wrong', {
      'wrong.ts': `import { readRecording } from 'weir-gpu';
        const [trace] = readRecording(new Uint8Array()).traces;
        console.log(trace.device);`,
    });
    expect([status, stdout]).toEqual([expect.any(Number), expect.stringContaining("'trace' is possibly 'undefined'")]);
    expect(status).not.toBe(0);
  });
});
