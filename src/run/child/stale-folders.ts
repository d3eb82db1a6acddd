// Folders that a killed run left behind. Rings lie in shared memory, so they take memory until somebody removes them.
// A job may outlive its supervisor: its folder stays until its last process has ended.
import { lstatSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ChildVariable } from '../../abi/environment.ts';
import { SUPERVISOR_FILE } from '../../abi/exchange.ts';
import { isAlive, ownerOf } from './folder-owner.ts';
import { folderPlaces, removeFolder } from './run-folder.ts';

export interface StaleFolder {
  readonly path: string;
  readonly bytes: number;
}

export function removeStaleFolders(environment: NodeJS.ProcessEnv): void {
  for (const { path } of staleFolders(environment)) removeFolder(path);
}

export function staleFolders(environment: NodeJS.ProcessEnv): StaleFolder[] {
  const abandoned = folderPlaces(environment).flatMap((place) =>
    namesIn(place)
      .filter((name) => {
        const owner = ownerOf(name);
        return owner !== undefined && !isAlive(owner);
      })
      .map((name) => join(place, name))
      .filter(isPrivate),
  );
  if (abandoned.length === 0) return [];
  const used = usedFolders();
  return abandoned
    .filter((path) => !used.has(path) && !isSupervised(path) && !isMapped(path))
    .map((path) => ({ path, bytes: bytesIn(path) }));
}

/** A folder of this user that nobody else can write to; no link to one. */
function isPrivate(path: string): boolean {
  try {
    const stat = lstatSync(path);
    return stat.isDirectory() && stat.uid === process.getuid?.() && (stat.mode & 0o077) === 0;
  } catch {
    return false;
  }
}

/** Folders that processes of this user were told to use. They may open a ring there at any time. */
function usedFolders(): Set<string> {
  const start = `${ChildVariable.runDir}=`;
  const found = new Set<string>();
  for (const name of namesIn('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const variable = read(`/proc/${name}/environ`)
      .split('\0')
      .find((entry) => entry.startsWith(start));
    if (variable !== undefined) found.add(variable.slice(start.length));
  }
  return found;
}

/** Whether the supervisor of a process without `weir run` is alive, and perhaps still reads what the process has left. */
function isSupervised(path: string): boolean {
  const [pid, started = ''] = read(join(path, SUPERVISOR_FILE)).split(' ');
  return isAlive({ pid: Number(pid), started });
}

/** Whether a process has a ring mapped that lies there, even if it has changed its environment since. */
export function isMapped(path: string): boolean {
  return namesIn(path).some((name) => {
    const pid = /^(\d+)\.ring$/.exec(name)?.[1];
    return pid !== undefined && read(`/proc/${pid}/maps`).includes(`${path}/`);
  });
}

function bytesIn(path: string): number {
  return namesIn(path).reduce((sum, name) => sum + (lstatSync(join(path, name), { throwIfNoEntry: false })?.blocks ?? 0) * 512, 0);
}

function namesIn(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}

function read(path: string): string {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    // It has ended, or is not ours.
    return '';
  }
}
