// What a test run says of tests that it skipped, and how `.ci/run` gets a Python with torch.
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { ROOT } from '../support/command.ts';

const folder = mkdtempSync(join(tmpdir(), 'weir-untested-'));
afterAll(() => rmSync(folder, { recursive: true }));

describe('the last line of a test run', () => {
  const project = join(folder, 'project');
  mkdirSync(project);
  writeFileSync(
    join(project, 'some.test.js'),
    `describe.skip('swapping (skipped: python3 has no torch)', () => { it('one', () => {}); it('two', () => {}); });
     it.skip('the page', () => {});
     it('runs', () => {});`,
  );
  const config = join(project, 'config.mjs');
  const reporter = new URL('scripts/untested-reporter.mjs', ROOT).pathname;
  writeFileSync(config, `export default { test: { globals: true, reporters: ['default', '${reporter}'], include: ['*.test.js'] } };`);
  const run = (variables: Record<string, string>, ...more: string[]) =>
    spawnSync(process.execPath, ['node_modules/vitest/vitest.mjs', 'run', '--root', project, '--config', config, ...more], {
      cwd: ROOT,
      encoding: 'utf8',
      env: { ...process.env, WEIR_NOT_TESTED: undefined, ...variables },
    });
  const line = 'Not tested: 3 tests: 2 in some.test.js, because python3 has no torch; 1 in some.test.js.\n';

  it('says what was skipped and why', () => {
    const { status, stdout } = run({});
    expect([status, stdout.slice(-line.length)]).toEqual([0, line]);
  });

  it('goes into a file for a caller that prints it last', () => {
    const path = join(folder, 'some/where');
    expect(run({ WEIR_NOT_TESTED: path }).stdout).not.toContain('Not tested');
    expect(readFileSync(path, 'utf8')).toBe(line);
  });

  it('says nothing of tests that nobody asked for', () => {
    expect(run({}, '-t', 'runs').stdout).not.toContain('Not tested');
  });
});

/** Programs that stand in for those of the machine. */
function programs(name: string, scripts: Record<string, string>): string {
  const path = join(folder, name);
  mkdirSync(path);
  for (const [program, text] of Object.entries(scripts)) {
    writeFileSync(join(path, program), `#!/bin/sh\n${text}\n`);
    chmodSync(join(path, program), 0o755);
  }
  return `${path}:/usr/bin:/bin`;
}

describe.skipIf(process.platform !== 'linux')('.ci/torch', () => {
  /** A Python without torch, whose virtual environments have a pip that does as `pip` says. */
  const python = (pip: string) => `
case "$*" in
  "-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
  "-m pip install"*) echo "$*" >> "\${0%/*}/asked"; ${pip} ;;
  *__version__*) echo 2.13.0+cpu ;;
  *"import torch"*) [ -e "\${0%/*}/has-torch" ] ;;
esac`;
  const run = (name: string, pip: string) => {
    const path = join(folder, `${name}-environment`);
    const env = { ...process.env, PATH: programs(name, { python3: python(pip) }) };
    const outcome = spawnSync(new URL('.ci/torch', ROOT).pathname, [`${name}-environment`], { cwd: folder, encoding: 'utf8', env });
    return { ...outcome, path };
  };

  it('installs the build for CPUs into the folder', () => {
    const { status, stdout, stderr, path } = run('cpu', 'touch "$' + '{0%/*}/has-torch"');
    expect([status, stdout]).toEqual([0, `${path}/bin/python\n`]);
    expect(stderr).toBe('torch: installed 2.13.0+cpu in cpu-environment\n');
    expect(readFileSync(join(path, 'bin/asked'), 'utf8')).toMatch(/torch==2\.13\.0\+cpu\n.* numpy\n$/);
  });

  it('takes another build where there is none for CPUs', () => {
    const { status, path } = run('any', 'case "$*" in *+cpu) exit 1 ;; esac; touch "$' + '{0%/*}/has-torch"');
    expect(status).toBe(0);
    expect(readFileSync(join(path, 'bin/asked'), 'utf8')).toMatch(/\+cpu\n.* torch\n.* numpy\n$/);
  });

  it('says why there is none, and leaves nothing behind', () => {
    const { status, stdout, stderr, path } = run('none', 'echo "ERROR: No matching distribution found for torch" >&2; exit 1');
    expect([status, stdout, stderr]).toEqual([1, '', 'torch: not installed: No matching distribution found for torch\n']);
    expect(existsSync(path)).toBe(false);
  });

  it('says that the torch it got does not work', () => {
    const { status, stderr } = run('broken', 'true');
    expect([status, stderr]).toEqual([1, 'torch: not installed: the torch that pip has cannot be imported\n']);
  });
});

describe.skipIf(process.platform !== 'linux')('.ci/run', () => {
  it('ends with what was not tested, and with the exit code of npm test', () => {
    const place = join(folder, 'checkout');
    mkdirSync(join(place, '.ci'), { recursive: true });
    for (const name of ['run', 'torch']) {
      writeFileSync(join(place, '.ci', name), readFileSync(new URL(`.ci/${name}`, ROOT)));
      chmodSync(join(place, '.ci', name), 0o755);
    }
    const there = 'exit 0';
    const path = programs('machine', {
      ...{ cc: there, 'g++': there, chromium: there, 'apt-get': 'exit 1', sudo: '"$@"' },
      python3: `case "$*" in *torch*|*ensurepip*|*venv*) exit 1 ;; esac`,
      npm: 'echo "Python: $WEIR_TEST_PYTHON."; mkdir -p build; echo "Not tested: 2 tests." > "$WEIR_NOT_TESTED"; echo npm error >&2; exit 7',
    });
    const env = { ...process.env, PATH: path, WEIR_TEST_PYTHON: '' };
    const { status, stdout, stderr } = spawnSync(join(place, '.ci/run'), { encoding: 'utf8', env });
    expect([status, stdout]).toEqual([7, 'Python: .\nNot tested: 2 tests.\n']);
    expect(stderr).toContain('torch: not installed, because python3 makes no virtual environment\n');
  });
});
