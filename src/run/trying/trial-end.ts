// Ends a trial run with all processes that it started, once the user interrupts. A trial has nothing to save.
import { readdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { childAndParent, type FolderOwner, identityOf, isAlive } from '../child/folder-owner.ts';
import { onSignals } from '../child/signals.ts';

/** The command itself receives the signal as in any run. What it started may not hear of it, such as the programs of a shell script. */
export class TrialEnd {
  private readonly patienceMs: number;
  private readonly stop: () => void;
  private readonly ended: FolderOwner[] = [];
  private command: FolderOwner | undefined;
  private timer: NodeJS.Timeout | undefined;
  private hasBegun = false;

  constructor(signals: readonly NodeJS.Signals[], patienceMs: number) {
    this.patienceMs = patienceMs;
    this.stop = onSignals(signals, () => this.begin());
  }

  watch(pid: number | undefined): void {
    this.command = pid === undefined ? undefined : identityOf(pid);
  }

  /** The command has ended: so must what it started, if it was interrupted. */
  async finish(): Promise<void> {
    this.stop();
    clearTimeout(this.timer);
    const deadline = performance.now() + this.patienceMs;
    while (this.ended.some(isAlive) && performance.now() < deadline) await sleep(20);
    this.kill();
  }

  private begin(): void {
    const { command } = this;
    if (this.hasBegun || !command) return;
    this.hasBegun = true;
    this.ended.push(...descendantsOf(command));
    for (const each of this.ended) send(each, 'SIGTERM');
    this.timer = setTimeout(() => {
      this.ended.push(command, ...descendantsOf(command));
      this.kill();
    }, this.patienceMs);
  }

  private kill(): void {
    for (const each of this.ended) send(each, 'SIGKILL');
  }
}

function send(owner: FolderOwner, signal: NodeJS.Signals): void {
  if (!isAlive(owner)) return;
  try {
    process.kill(owner.pid, signal);
  } catch {
    // It has just ended, or is another user's.
  }
}

/** All that it started, and what that started. Numbers are used again, so only children of those that still run count. */
export function descendantsOf(owner: FolderOwner): FolderOwner[] {
  const children = new Map<number, FolderOwner[]>();
  for (const name of readdirSync('/proc')) {
    const found = /^\d+$/.test(name) ? childAndParent(Number(name)) : undefined;
    if (!found) continue;
    const siblings = children.get(found.parent);
    if (siblings) siblings.push(found.child);
    else children.set(found.parent, [found.child]);
  }
  const found: FolderOwner[] = [];
  const open = [owner];
  for (let parent = open.pop(); parent !== undefined; parent = open.pop()) {
    if (!isAlive(parent)) continue;
    const own = children.get(parent.pid) ?? [];
    found.push(...own);
    open.push(...own);
  }
  return found;
}
