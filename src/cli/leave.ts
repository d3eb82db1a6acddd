// Ends the process with its exit code, at once. Node's own way out waits for its compiler threads, and these may be waiting
// for the thread that waits (nodejs/node#54918): now and then a busy process then never ends, its work long done.
import type { Writable } from 'node:stream';
import { loadKoffi } from '../device/ffi.ts';

/** When all that was written is out: a pipe may be slower than we are. */
export async function leave(): Promise<never> {
  await Promise.all([written(process.stdout), written(process.stderr)]);
  return leaveNow();
}

export function leaveNow(): never {
  const code = Number(process.exitCode ?? 0);
  try {
    loadKoffi().load(null).func('void _exit(int)')(code);
  } catch {
    // Without native code the ordinary way has to do.
  }
  process.exit(code);
}

/** Resolves when everything written so far has gone out, or cannot. */
export async function written(stream: Writable): Promise<void> {
  if (stream.writableLength === 0 || stream.destroyed) return;
  await new Promise<void>((resolve) => {
    stream.write('', () => resolve());
  });
}
