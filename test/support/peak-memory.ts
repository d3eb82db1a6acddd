// Runs the real command and watches how much memory it takes, from /proc.
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { MAIN, type Outcome, ROOT } from './command.ts';

const EVERY_MS = 10;

/** The outcome of a command, and the most memory that it held, in bytes. */
export async function weirPeak(parameters: readonly string[]): Promise<Outcome & { peak: number }> {
  const child = spawn(process.execPath, [MAIN, ...parameters], {
    cwd: ROOT.pathname,
    env: { ...process.env, NO_COLOR: '1' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  let peak = 0;
  child.stdout.on('data', (chunk: Buffer) => {
    stdout += chunk.toString();
  });
  child.stderr.on('data', (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  const watch = setInterval(() => {
    peak = Math.max(peak, highWaterMark(child.pid!));
  }, EVERY_MS);
  return new Promise((resolve) =>
    child.on('close', (code, signal) => {
      clearInterval(watch);
      resolve({ code, signal, stdout, stderr, peak });
    }),
  );
}

/** The kernel's own maximum, so that nothing between two looks is missed. */
function highWaterMark(pid: number): number {
  try {
    return Number(/VmHWM:\s*(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}
