// The private folders of a run: one for the rings of its processes, in shared memory if there is room, and one for temporary recordings.
// Their names say whose they are, so that a later run can remove those of a run that was killed.
import { accessSync, constants, mkdtempSync, rmSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { RING_FRAME_BYTES, RING_FRAME_STRING_BYTES, RING_FRAMES, RING_STACK_BYTES, RING_STACKS } from '../../abi/ring.ts';
import { EVENT_BYTES } from '../../trace/weir/format.ts';
import { ownName } from './folder-owner.ts';

/** Rings that must fit. Containers often have a /dev/shm of 64 MiB, which one ring fills. */
const RINGS = 16;

export function createRunFolder(ringRows: number, environment: NodeJS.ProcessEnv = process.env): string {
  const stackBytes = RING_STACKS * RING_STACK_BYTES + RING_FRAMES * RING_FRAME_BYTES + RING_FRAME_STRING_BYTES;
  const enough = RINGS * (ringRows * EVENT_BYTES + stackBytes);
  const candidates = folderPlaces(environment)
    .map((path) => ({ path, free: freeBytes(path) }))
    .filter(({ free }) => free >= 0);
  const roomy = candidates.find(({ free }) => free >= enough);
  const chosen = roomy ?? candidates.sort((a, b) => b.free - a.free)[0];
  return mkdtempSync(join(chosen?.path ?? tmpdir(), ownName()));
}

/** A folder on disk, for recordings that nobody keeps. */
export function createScratchFolder(): string {
  return mkdtempSync(join(tmpdir(), ownName()));
}

/** Where folders of runs may lie. */
export function folderPlaces(environment: NodeJS.ProcessEnv): string[] {
  const places = [environment['XDG_RUNTIME_DIR'], '/dev/shm', tmpdir()];
  return [...new Set(places.filter((path) => path?.startsWith('/')))] as string[];
}

export function removeFolder(path: string): void {
  try {
    rmSync(path, { recursive: true, force: true });
  } catch {
    // A process that outlived the run may be creating a file there. The folder is small.
  }
}

/** Free bytes; below 0 if the folder cannot be written. */
function freeBytes(path: string): number {
  try {
    accessSync(path, constants.W_OK | constants.X_OK);
    const { bavail, bsize } = statfsSync(path);
    return bavail * bsize;
  } catch {
    return -1;
  }
}
