// Runs the real `weir` command as a user would, and keeps what it printed.
import { type ChildProcess, spawn } from 'node:child_process';

export const ROOT: URL = new URL('../../', import.meta.url);
export const MAIN: string = new URL('dist/cli/main.js', ROOT).pathname;

export interface Outcome {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export async function weir(
  parameters: readonly string[],
  options: { input?: Uint8Array; env?: Record<string, string>; cwd?: string } = {},
): Promise<Outcome> {
  const child = spawn(process.execPath, [MAIN, ...parameters], {
    cwd: options.cwd ?? ROOT.pathname,
    env: { ...process.env, NO_COLOR: '1', ...options.env },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  child.stdin.on('error', () => {});
  child.stdin.end(options.input);
  return outcomeOf(child);
}

/** What a command said until its end. */
export function outcomeOf(child: ChildProcess): Promise<Outcome> {
  let stdout = '';
  let stderr = '';
  child.stdout?.on('data', (chunk: Buffer) => {
    stdout += chunk.toString();
  });
  child.stderr?.on('data', (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  return new Promise((resolve) => child.on('close', (code, signal) => resolve({ code, signal, stdout, stderr })));
}
