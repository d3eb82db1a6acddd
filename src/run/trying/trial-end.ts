// Ends a trial run with all processes that it started, once the user interrupts. A trial has nothing to save.
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { type FolderOwner, identityOf, isAlive } from '../child/folder-owner.ts';
import { onSignals } from '../child/signals.ts';

/** The command itself receives the signal as in any run. What it started may not hear of it, such as the programs of a shell script. */
export class TrialEnd {
  private readonly patienceMs: number;
  private readonly stop: () => void;
  private readonly ended: FolderOwner[] = [];
  private pid: number | undefined;
  private timer: NodeJS.Timeout | undefined;
  private hasBegun = false;

  constructor(signals: readonly NodeJS.Signals[], patienceMs: number) {
    this.patienceMs = patienceMs;
    this.stop = onSignals(signals, () => this.begin());
  }

  watch(pid: number | undefined): void {
    this.pid = pid;
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
    if (this.hasBegun || this.pid === undefined) return;
    this.hasBegun = true;
    this.ended.push(...descendantsOf(this.pid));
    for (const each of this.ended) send(each, 'SIGTERM');
    this.timer = setTimeout(() => {
      const own = identityOf(this.pid!);
      this.ended.push(...(own ? [own] : []), ...descendantsOf(this.pid!));
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

/** All that it started, and what that started. */
function descendantsOf(pid: number): FolderOwner[] {
  const children = new Map<number, number[]>();
  for (const name of readdirSync('/proc')) {
    const parent = /^\d+$/.test(name) ? parentOf(Number(name)) : undefined;
    if (parent !== undefined) children.set(parent, [...(children.get(parent) ?? []), Number(name)]);
  }
  const found: number[] = [];
  const open = [pid];
  for (let parent = open.pop(); parent !== undefined; parent = open.pop()) {
    const own = children.get(parent) ?? [];
    found.push(...own);
    open.push(...own);
  }
  return found.flatMap((each) => identityOf(each) ?? []);
}

function parentOf(pid: number): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The fields after the name, which may contain anything: state, parent.
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
  } catch {
    return undefined;
  }
}
