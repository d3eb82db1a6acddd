// The process that writes a ring, and whether it has ended. A process that is killed, or ends by os._exit, does not close its ring.
// Its number alone proves nothing: in another container it belongs to another process. So the process must have the ring in its memory.
import { readFileSync } from 'node:fs';
import { type FolderOwner, identityOf, isAlive } from '../child/folder-owner.ts';

/** Undefined if the process has ended already, or is not among the processes that we see. */
export function processOfRing(pid: number, inode: number): FolderOwner | undefined {
  const identity = identityOf(pid);
  if (!identity) return undefined;
  try {
    const maps = readFileSync(`/proc/${pid}/maps`, 'latin1');
    const isMapped = new RegExp(` ${inode} +/.*/${pid}\\.ring$`, 'm').test(maps);
    return isMapped && isAlive(identity) ? identity : undefined;
  } catch {
    return undefined;
  }
}

/** Whether the process is known, and gone: then nobody writes to its ring any more. */
export function hasEnded(identity: FolderOwner | undefined): boolean {
  return identity !== undefined && !isAlive(identity);
}
