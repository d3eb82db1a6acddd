// Python programs on the stand-in GPU: real processes with Weir's Python part, engine and rings, on host memory instead of a GPU.
// PyTorch is the real one where WEIR_TEST_PYTHON has it; otherwise a folder named torch that does what Weir needs of it.
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect } from 'vitest';
import { isAlive } from '../../src/run/child/folder-owner.ts';
import { whyNoNative } from '../engine/native/build.ts';
import { type Outcome, outcomeOf } from './command.ts';
import { libraryIn, makeStandin, standinEnvironment } from './standin-folder.ts';

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
      makeStandin(this.folder);
    });
    afterAll(() => rmSync(this.folder, { recursive: true, force: true }));
  }

  get library(): string {
    return libraryIn(this.folder);
  }

  environment(variables: Record<string, string> = {}, torch = join(this.folder, 'fake')): NodeJS.ProcessEnv {
    return standinEnvironment(this.folder, variables, torch);
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
