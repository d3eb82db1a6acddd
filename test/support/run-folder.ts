// A folder of its own for each test of `weir run`, and the command over the job without a GPU.
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach } from 'vitest';
import { MAIN, type Outcome, ROOT } from './command.ts';

const JOB = new URL('build/test/run/fake-job.js', ROOT).pathname;

export class RunFolder {
  /** Of the test that runs. */
  path = '';
  /** Run folders and temporary recordings of these tests alone, so that what is left behind can be seen. */
  readonly temporary: string;
  readonly environment: NodeJS.ProcessEnv;
  private count = 0;

  /** To be made at the top of a test file. */
  constructor() {
    const root = mkdtempSync(join(tmpdir(), 'weir-run-test-'));
    this.temporary = join(root, 'tmp');
    mkdirSync(this.temporary);
    // Not as started by nohup, whatever has started the tests.
    this.environment = { ...process.env, _: undefined, NO_COLOR: '1', XDG_RUNTIME_DIR: this.temporary, TMPDIR: this.temporary };
    beforeEach(() => {
      this.path = join(root, String(this.count++));
      mkdirSync(this.path);
    });
    afterAll(() => rmSync(root, { recursive: true }));
  }

  start(parameters: readonly string[], env: Record<string, string> = {}): ChildProcess {
    return spawn(process.execPath, [MAIN, ...parameters], {
      cwd: this.path,
      env: { ...this.environment, ...env },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
  }

  async weir(parameters: readonly string[], env: Record<string, string> = {}, input?: Uint8Array): Promise<Outcome & { bytes: Buffer }> {
    const child = this.start(parameters, env);
    const out: Buffer[] = [];
    let stderr = '';
    child.stdout!.on('data', (chunk: Buffer) => out.push(chunk));
    child.stderr!.on('data', (chunk: Buffer) => {
      stderr += chunk.toString();
    });
    child.stdin!.on('error', () => {});
    child.stdin!.end(input);
    return new Promise((resolve) =>
      child.on('close', (code, signal) => {
        const bytes = Buffer.concat(out);
        resolve({ code, signal, stdout: bytes.toString(), stderr, bytes });
      }),
    );
  }

  /** Recordings that were kept. */
  traces(): string[] {
    return readdirSync(this.path).filter((name) => name.endsWith('.weir') && name !== 'latest.weir');
  }

  readJson(name: string) {
    return JSON.parse(readFileSync(join(this.path, name), 'utf8'));
  }
}

export const job = (...words: string[]): string[] => ['--', process.execPath, JOB, ...words];
