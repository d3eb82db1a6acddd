// Whose a folder is, by its name: the process of a supervisor, when that started, and among which processes its number counts.
// A process id alone may belong to another process later, and to others in other containers that share /dev/shm.
import { createHash } from 'node:crypto';
import { readFileSync, readlinkSync } from 'node:fs';

const NAME = /^weir-run-(\d+)-(\d+)-([0-9a-f]{8})-\w{6}$/;

/** A process: its number, and when it started. */
export interface FolderOwner {
  readonly pid: number;
  /** In ticks since the machine started. */
  readonly started: string;
}

/** The beginning of the name of a folder of ours. Random characters follow. */
export function ownName(): string {
  return `weir-run-${process.pid}-${startOf(process.pid) ?? 0}-${surroundings() ?? '00000000'}-`;
}

/** Undefined if the name is not that of a run among the processes that we see. */
export function ownerOf(name: string): FolderOwner | undefined {
  const [, pid, started, place] = NAME.exec(name) ?? [];
  return place !== undefined && place === surroundings() ? { pid: Number(pid), started: started! } : undefined;
}

/** Undefined if there is no such process. */
export function identityOf(pid: number): FolderOwner | undefined {
  const started = startOf(pid);
  return started === undefined ? undefined : { pid, started };
}

export function isAlive({ pid, started }: FolderOwner): boolean {
  return startOf(pid) === started;
}

/** This process, as others recognize it. */
export function ownIdentity(): FolderOwner {
  return { pid: process.pid, started: startOf(process.pid) ?? '0' };
}

/** A process and the number of its parent, of one moment; undefined if there is no such process. */
export function childAndParent(pid: number): { child: FolderOwner; parent: number } | undefined {
  const fields = fieldsOf(pid);
  return fields && { child: { pid, started: fields[19]! }, parent: Number(fields[1]) };
}

/** Undefined if there is no such process. */
function startOf(pid: number): string | undefined {
  return fieldsOf(pid)?.[19];
}

/** State, parent, 17 others, start. Undefined if there is no such process, or it has ended and only its parent has not noticed yet. */
function fieldsOf(pid: number): string[] | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The fields after the name, which may contain anything.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    // The first thread may end before the others.
    const hasEnded = fields[0] === 'X' || (fields[0] === 'Z' && Number(fields[17]) <= 1);
    return hasEnded ? undefined : fields;
  } catch {
    return undefined;
  }
}

/** Names this start of this machine and our namespace of process ids; undefined where nothing says. */
function surroundings(): string | undefined {
  try {
    const facts = `${readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim()} ${readlinkSync('/proc/self/ns/pid')}`;
    return createHash('sha256').update(facts).digest('hex').slice(0, 8);
  } catch {
    return undefined;
  }
}
