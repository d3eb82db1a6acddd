// Python programs on the stand-in GPU: real processes with Weir's Python part, engine and rings, on host memory instead of a GPU.
// PyTorch is the real one where WEIR_TEST_PYTHON has it; otherwise a folder named torch that does what Weir needs of it.
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect } from 'vitest';
import { run as compile, compileParts, compilerOf } from '../../scripts/native-rules.mjs';
import { isAlive } from '../../src/run/child/folder-owner.ts';
import { whyNoNative } from '../engine/native/build.ts';
import { type Outcome, outcomeOf } from './command.ts';

const PACKAGE = resolve('dist/python');
const SOURCES = resolve('test/python/standin');

/** As PyTorch: its import ends with the entry points, and CUDA starts at its first use, with what was queued for that. */
const FAKE_TORCH = `
import os, types
class version: cuda = os.environ.get("FAKE_CUDA", "13.0") or None
class _C: _GLIBCXX_USE_CXX11_ABI = True
__version__ = os.environ.get("FAKE_VERSION", "2.11.0+cu130")
cuda = types.ModuleType("torch.cuda")
cuda._initialized, cuda._queued_calls = False, []
cuda.is_initialized = lambda: cuda._initialized
cuda._is_in_bad_fork = lambda: bool(os.environ.get("FAKE_BAD_FORK"))
def _lazy_call(call, **kwargs):
    if cuda._initialized: call()
    else: cuda._queued_calls.append((call, []))
cuda._lazy_call = _lazy_call
if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
    import sys
    from importlib.metadata import entry_points
    old = sys.version_info < (3, 10)
    for entry in entry_points().get("torch.backends", ()) if old else entry_points(group="torch.backends"):
        try: entry.load()()
        except Exception as error:
            raise RuntimeError(f"Failed to load the backend extension: {entry.name}.") from error
`;

/** Python that prints who supervises the process. */
export const SUPERVISOR = 'from weir_gpu import enabling; print(enabling._supervisor.started, flush=True)';

export function whyNoStandin(): string | undefined {
  if (spawnSync('python3', ['-c', 'import sys; sys.exit(sys.version_info < (3, 9))']).status !== 0) return 'no Python 3.9 or newer';
  return whyNoNative();
}

/** To be made at the top of a test file. */
export class Standin {
  /** Folders of runs and temporary recordings of these tests alone, so that what is left behind can be seen. */
  temporary = '';
  folder = '';

  constructor() {
    beforeAll(() => {
      this.folder = mkdtempSync(join(tmpdir(), 'weir-standin-'));
      this.temporary = join(this.folder, 'tmp');
      for (const name of ['tmp', 'fake/torch']) mkdirSync(join(this.folder, name), { recursive: true });
      writeFileSync(join(this.folder, 'fake/torch/__init__.py'), FAKE_TORCH);
      const objects = compileParts(['engine', 'backend', 'runtime', 'testing'], 'release', join(this.folder, 'objects'));
      const includes = ['-Inative', '-Inative/engine', '-Ibuild/native'];
      compile(compilerOf('c'), [
        ...['-std=c11', '-O1', '-g', '-Wall', '-Wextra', '-Werror', '-fPIC', '-shared', '-pthread', ...includes],
        ...[join(SOURCES, 'standin_adapter.c'), ...objects, '-o', this.library],
      ]);
    });
    afterAll(() => rmSync(this.folder, { recursive: true, force: true }));
  }

  get library(): string {
    return join(this.folder, 'libstandin.so');
  }

  environment(variables: Record<string, string> = {}, torch = join(this.folder, 'fake')): NodeJS.ProcessEnv {
    const rest = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('WEIR')));
    return {
      ...rest,
      PYTHONPATH: [SOURCES, PACKAGE, ...(torch ? [torch] : [])].join(':'),
      PYTHONDONTWRITEBYTECODE: '1',
      NO_COLOR: '1',
      XDG_RUNTIME_DIR: this.temporary,
      TMPDIR: this.temporary,
      WEIR_STANDIN_LIBRARY: this.library,
      ...variables,
    };
  }

  start(script: string, variables: Record<string, string> = {}, stdio: 'pipe' | 'ignore' = 'pipe'): ChildProcess {
    return spawn('python3', ['-c', script], { cwd: this.folder, env: this.environment(variables), stdio: ['ignore', stdio, stdio] });
  }

  async python(script: string, variables: Record<string, string> = {}): Promise<Outcome> {
    return outcomeOf(this.start(script, variables));
  }

  /** Resolves when a process has ended; `<pid> <start>` as Python prints it. */
  async gone(identity: string): Promise<void> {
    const [pid, started = ''] = identity.split(' ');
    expect(started).toMatch(/^\d+$/);
    while (isAlive({ pid: Number(pid), started })) await sleep(20);
  }

  /** Puts a Node into the folder that writes a line into `log` for every supervisor. */
  countingNode(folder: string): void {
    const count = `case " $* " in *" supervise "*) echo started >> ${folder}/log;; esac`;
    writeFileSync(join(folder, 'node'), `#!/bin/sh\n${count}\nexec ${process.execPath} "$@"\n`, { mode: 0o755 });
  }

  /** Folders of runs that are there. */
  left(): string[] {
    return readdirSync(this.temporary).filter((name) => name.startsWith('weir-run-'));
  }
}
