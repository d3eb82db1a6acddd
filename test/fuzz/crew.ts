// The processes that read the inputs of one target. The supervisor gives them chunks of numbers and watches them:
// a process that hangs, dies or grows is ended, its input is noted, and another process goes on behind it.
import { type ChildProcess, fork } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ChunkResult, ChunkTask, Defect, Limits, TargetResult } from './result.ts';
import type { Target } from './targets.ts';

const LOOK_EVERY_MS = 200;
/** Deaths and hangs of one target after which it is given up: each takes seconds. */
const MOST_DEATHS = 5;
const MOST_DEFECTS = 20;
const FIRST_CHUNK = 100;
/** Inputs of a chunk take about this long. */
const CHUNK_MS = 1000;
const PAGE_BYTES = 4096;
const MIB = 2 ** 20;

export interface CrewOptions {
  readonly seed: number;
  readonly workers: number;
  /** Inputs to read; infinite if only the time is limited. */
  readonly executions: number;
  /** When to stop, as `performance.now()` counts. */
  readonly deadline: number;
  readonly limits: Limits;
}

interface Member {
  readonly process: ChildProcess;
  readonly progressPath: string;
  task: ChunkTask | undefined;
  began: number;
  /** The input in work, and since when. */
  number: number;
  since: number;
  perMs: number;
  /** Why the supervisor ended it. */
  verdict: string | undefined;
  stderr: string;
}

export class Crew {
  private readonly target: Target;
  private readonly options: CrewOptions;
  private readonly folder = mkdtempSync(join(tmpdir(), 'weir-fuzz-'));
  private readonly members = new Set<Member>();
  private readonly waiting: ChunkTask[] = [];
  private readonly outcomes = new Map<string, number>();
  private readonly defects = new Map<string, Defect>();
  private next = 0;
  private started = 0;
  private deaths = 0;
  private executions = 0;
  private slowestMs = 0;
  private slowest = 0;
  private peakMemory = 0;

  constructor(target: Target, options: CrewOptions) {
    this.target = target;
    this.options = options;
  }

  async run(): Promise<TargetResult> {
    const began = performance.now();
    const watch = setInterval(() => this.watch(), LOOK_EVERY_MS);
    try {
      await new Promise<void>((resolve, reject) => {
        for (let worker = 0; worker < this.options.workers; worker++) this.hire(resolve, reject);
      });
    } finally {
      clearInterval(watch);
      for (const member of this.members) member.process.kill('SIGKILL');
      rmSync(this.folder, { recursive: true, force: true });
    }
    return this.result((performance.now() - began) / 1000);
  }

  private hire(resolve: () => void, reject: (error: Error) => void): void {
    const progressPath = join(this.folder, String(this.started++));
    const child = fork(fileURLToPath(new URL('./worker.js', import.meta.url)), [this.target.name, progressPath], {
      execArgv: ['--expose-gc', `--max-old-space-size=${this.options.limits.mostMemory / MIB}`],
      stdio: ['ignore', 'inherit', 'pipe', 'ipc'],
    });
    const member: Member = {
      process: child,
      progressPath,
      task: undefined,
      began: 0,
      number: -1,
      since: 0,
      perMs: FIRST_CHUNK / CHUNK_MS,
      verdict: undefined,
      stderr: '',
    };
    this.members.add(member);
    child.stderr?.on('data', (text: Buffer) => {
      member.stderr = (member.stderr + text.toString()).slice(-2000);
    });
    let isReady = false;
    child.on('message', (message: 'ready' | ChunkResult) => {
      isReady = true;
      if (message !== 'ready') this.take(member, message);
      if (member.verdict === undefined && !this.give(member)) child.disconnect();
    });
    child.on('exit', (code, signal) => {
      this.members.delete(member);
      if (!isReady) reject(new Error(`a worker did not start: ${member.stderr}`));
      if (member.task) this.bury(member, signal ?? `exit code ${code}`);
      if (this.hasWork()) this.hire(resolve, reject);
      else if (this.members.size === 0) resolve();
    });
  }

  private hasWork(): boolean {
    if (this.deaths > MOST_DEATHS || this.defects.size > MOST_DEFECTS) return false;
    return (this.waiting.length > 0 || this.next < this.options.executions) && performance.now() < this.options.deadline;
  }

  /** Gives the member a chunk. Returns false if there is nothing left. */
  private give(member: Member): boolean {
    if (!this.hasWork()) return false;
    const left = this.options.executions - this.next;
    const count = Math.max(1, Math.min(Math.round(member.perMs * CHUNK_MS), 50_000, Math.ceil(left / (2 * this.options.workers))));
    const to = Math.min(this.next + count, this.options.executions);
    const task = this.waiting.shift() ?? { seed: this.options.seed, from: this.next, to, limits: this.options.limits };
    if (task.from === this.next) this.next = task.to;
    member.task = task;
    member.began = performance.now();
    member.number = -1;
    member.since = member.began;
    member.process.send(task);
    return true;
  }

  private take(member: Member, result: ChunkResult): void {
    const task = member.task!;
    member.task = undefined;
    member.perMs = (result.to - result.from) / Math.max(1, performance.now() - member.began);
    const { mostMemory } = this.options.limits;
    const [grown] = result.defects.filter(({ what }) => what.startsWith('memory'));
    if (result.peakMemory > mostMemory) this.dismiss(member, 'it has grown');
    if (result.peakMemory > mostMemory && !task.isSlow) {
      // Some input of the chunk took the memory: a fresh process finds out which.
      this.waiting.push({ ...task, isSlow: true });
      return;
    }
    for (const defect of result.defects) this.note(defect);
    if (grown && grown.number + 1 < task.to) this.waiting.push({ ...task, from: grown.number + 1 });
    for (const [outcome, count] of result.outcomes) this.count(outcome, count);
    if (grown) this.count('defect', 1);
    else this.peakMemory = Math.max(this.peakMemory, result.peakMemory);
    if (result.slowestMs > this.slowestMs) {
      this.slowestMs = result.slowestMs;
      this.slowest = result.slowest;
    }
  }

  /** A process ended in the middle of a chunk: its input is a defect, and the others of the chunk are read again. */
  private bury(member: Member, how: string): void {
    const task = member.task!;
    const number = Math.max(task.from, this.progressOf(member));
    if (member.verdict?.startsWith('memory') && !task.isSlow) {
      // It may be garbage of several inputs.
      this.waiting.push({ ...task, isSlow: true });
      return;
    }
    this.deaths++;
    const what = member.verdict ?? `the process died (${how}) ${member.stderr.trim().split('\n').slice(0, 3).join(' | ')}`;
    this.note({ target: this.target.name, seed: task.seed, number, what });
    this.count('defect', 1);
    if (number > task.from) this.waiting.push({ ...task, to: number });
    if (number + 1 < task.to) this.waiting.push({ ...task, from: number + 1 });
  }

  private watch(): void {
    const now = performance.now();
    const { slowMs, mostMemory } = this.options.limits;
    for (const member of this.members) {
      if (!member.task || member.verdict !== undefined) continue;
      const number = this.progressOf(member);
      if (number !== member.number) {
        member.number = number;
        member.since = now;
      } else if (now - member.since > slowMs) this.dismiss(member, `it did not come to an end in ${slowMs} ms`);
      const memory = memoryOf(member.process.pid!);
      if (memory > mostMemory) this.dismiss(member, `memory of the process went up to ${Math.round(memory / MIB)} MiB`);
    }
  }

  private dismiss(member: Member, verdict: string): void {
    member.verdict = verdict;
    member.process.kill('SIGKILL');
  }

  private progressOf(member: Member): number {
    try {
      const bytes = readFileSync(member.progressPath);
      return bytes.length >= 4 ? bytes.readUInt32LE(0) : -1;
    } catch {
      return -1;
    }
  }

  private note(defect: Defect): void {
    // Many inputs show one defect: the same error at the same place. The first is kept.
    const [first = '', ...places] = defect.what.split('\n');
    const key = places.length > 0 ? [first.split(':')[0], ...places.slice(0, 4)].join('\n') : first.replaceAll(/\d+/g, '#');
    if (!this.defects.has(key)) this.defects.set(key, defect);
  }

  private count(outcome: string, count: number): void {
    this.executions += count;
    this.outcomes.set(outcome, (this.outcomes.get(outcome) ?? 0) + count);
  }

  private result(seconds: number): TargetResult {
    const refusals = [...this.outcomes].filter(([outcome]) => outcome !== 'read' && outcome !== 'defect').sort((a, b) => b[1] - a[1]);
    return {
      target: this.target.name,
      reads: this.target.reads,
      seed: this.options.seed,
      executions: this.executions,
      read: this.outcomes.get('read') ?? 0,
      refused: refusals.reduce((sum, [, count]) => sum + count, 0),
      refusals,
      slowestMs: this.slowestMs,
      slowest: this.slowest,
      peakMemory: this.peakMemory,
      seconds,
      workers: this.options.workers,
      defects: [...this.defects.values()],
    };
  }
}

/** Memory of a process now; 0 where /proc does not say. */
function memoryOf(pid: number): number {
  try {
    return Number(readFileSync(`/proc/${pid}/statm`, 'utf8').split(' ')[1]) * PAGE_BYTES;
  } catch {
    return 0;
  }
}
