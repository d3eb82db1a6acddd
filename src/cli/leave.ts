// Ends the process with its exit code, at once. Node's own way out waits for its compiler threads, and these may be waiting
// for the thread that waits (nodejs/node#54918): now and then a busy process then never ends, its work long done.
import { constants } from 'node:fs';
import type { Writable } from 'node:stream';
import { loadKoffi } from '../backend/ffi.ts';

/** When all that was written is out: a pipe may be slower than we are. */
export async function leave(): Promise<never> {
  await Promise.all([written(process.stdout), written(process.stderr)]);
  return leaveNow();
}

const F_GETFL = 3;
const F_SETFL = 4;

export function leaveNow(): never {
  const code = Number(process.exitCode ?? 0);
  try {
    const library = loadKoffi().load(null);
    if (process.platform === 'linux') unblock(library.func('int fcntl(int, int, ...)') as Fcntl);
    library.func('void _exit(int)')(code);
  } catch {
    // Without native code the ordinary way has to do.
  }
  process.exit(code);
}

type Fcntl = (fd: number, command: number, type: 'int', value: number) => number;

/** Node makes pipes non-blocking, for all who share them: programs that write to them after us would lose what they write. */
function unblock(fcntl: Fcntl): void {
  for (const fd of [0, 1, 2]) {
    const flags = fcntl(fd, F_GETFL, 'int', 0);
    if (flags >= 0 && flags & constants.O_NONBLOCK) fcntl(fd, F_SETFL, 'int', flags & ~constants.O_NONBLOCK);
  }
}

/** Resolves when everything written so far has gone out, or cannot. */
export async function written(stream: Writable): Promise<void> {
  if (stream.writableLength === 0 || stream.destroyed) return;
  await new Promise<void>((resolve) => {
    stream.write('', () => resolve());
  });
}
