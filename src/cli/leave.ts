// Ends the process at once, with its exit code. Node's own exit waits for its compiler threads, which can deadlock
// (nodejs/node#54918): a busy process then hangs although its work is done.
import { constants } from 'node:fs';
import type { Writable } from 'node:stream';
import { loadKoffi } from '../backend/ffi.ts';

/** Ends the process after all output is written, since a pipe may be slow. */
export async function leave(): Promise<never> {
  await flushed();
  return leaveNow();
}

/** Resolves when all output is written, or cannot be. */
export async function flushed(): Promise<void> {
  await Promise.all([written(process.stdout), written(process.stderr)]);
}

const F_GETFL = 3;
const F_SETFL = 4;

export function leaveNow(): never {
  const code = Number(process.exitCode ?? 0);
  if (process.platform === 'linux') {
    try {
      const library = loadKoffi().load(null);
      unblock(library.func('int fcntl(int, int, ...)') as Fcntl);
      library.func('void _exit(int)')(code);
    } catch {
      // Without native code, exit as Node does.
    }
  }
  process.exit(code);
}

type Fcntl = (fd: number, command: number, type: 'int', value: number) => number;

/** Node makes shared pipes non-blocking. Programs that write to them after us would lose output. */
function unblock(fcntl: Fcntl): void {
  for (const fd of [0, 1, 2]) {
    const flags = fcntl(fd, F_GETFL, 'int', 0);
    if (flags >= 0 && flags & constants.O_NONBLOCK) fcntl(fd, F_SETFL, 'int', flags & ~constants.O_NONBLOCK);
  }
}

/** Resolves when everything written so far is flushed, or the stream is broken. */
export async function written(stream: Writable): Promise<void> {
  if (stream.writableLength === 0 || stream.destroyed) return;
  await new Promise<void>((resolve) => {
    stream.write('', () => resolve());
  });
}
