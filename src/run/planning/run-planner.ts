// Plans the steps of a running job: sends rows to a thread that looks for steps (plan-worker.ts) and announces its plans to the job.
// Gauges show whether a plan is followed. If it no longer is, the process is watched again.
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { formatBytes } from '../../base/bytes.ts';
import { formatTimes } from '../../base/counts.ts';
import { dismiss } from '../../base/thread.ts';
import { markKind } from '../../plan/steps/memory-ops.ts';
import { EVENT_BYTES } from '../../trace/weir/format.ts';
import { levelName } from '../rings/levels.ts';
import type { ProcessRecording } from '../rings/process-recording.ts';
import type { Gauges } from '../rings/ring-layout.ts';
import { devicesOf, PACKED, type PlanAnswer, type PlanFacts, type PlanRequest, packRows } from './plan-messages.ts';

/** Most rows on their way to the thread. Beyond that, watching restarts rather than fill memory. */
const MOST_WAITING = 4_000_000;
/** A plan is in use if it serves this share of the requests. */
const FOLLOWED = 0.8;
/** Requests are judged in stretches of so many steps. After so many bad stretches in a row, a process is watched again. */
const JUDGED_STEPS = 2;
const BAD_STRETCHES = 3;
const MOST_PATIENCE = 64;
/** Most plans for a process: one that needs more never follows them. */
const MOST_PLANS = 16;
/** Steps at the end of a run whose driver calls are reported. */
const LAST_STEPS = 3;
const MOST_SAMPLES = 128;
/** Batches of rows, some minutes of a busy job, after which swapping counts as settled. */
const MOST_UNSETTLED = 4000;
/** Marks that Weir itself puts into a recording. They are for people. */
const OWN_MARKS = 'weir ';

export type PlanState = 'watching' | 'waiting' | 'following' | 'stopped';

/** The outcome of planning, for one process on one GPU. */
export interface PlanReport {
  readonly state: PlanState;
  /** Why there is no plan, or none in use; undefined if one is in use. */
  readonly reason: string | undefined;
  readonly plans: readonly PlanFacts[];
  readonly refused: number;
  /** How often the job stopped following a plan. */
  readonly left: number;
  /** The last steps that followed a plan: peak reserved, number of steps, driver calls, share of requests served by the plan. */
  readonly measured:
    | { readonly reserved: number; readonly steps: number; readonly driverCalls: number; readonly share: number }
    | undefined;
}

/** Where messages for the user go. */
export interface PlannerVoice {
  say(sentence: string): void;
  detail(sentence: string): void;
}

interface Sample {
  readonly hits: number;
  readonly requests: number;
  readonly driverCalls: number;
  readonly reserved: number;
}

class Planned {
  readonly key: number;
  readonly recording: ProcessRecording;
  readonly gpu: number;
  state: PlanState = 'watching';
  reason: string | undefined;
  readonly plans: PlanFacts[] = [];
  refused = 0;
  left = 0;
  dropped = 0;
  /** Blocks from before it was watched are live: watching begins with a restart. */
  isNew = false;
  /** A restart that takes effect after so many more rows, with so many bytes live. */
  restart: { readonly rowsLeft: number; readonly live: number } | undefined;
  /** Sample at the start of the current stretch. */
  judged: Sample | undefined;
  bad = 0;
  patience = BAD_STRETCHES;
  /** Samples taken while a plan was followed; `fresh` are those of the current stretch. */
  samples: Sample[] = [];
  fresh: Sample[] = [];
  readonly told = new Set<string>();
  private readonly markKinds = new Map<string, number>();

  constructor(key: number, recording: ProcessRecording, gpu: number) {
    this.key = key;
    this.recording = recording;
    this.gpu = gpu;
    this.dropped = recording.dropped;
  }

  /** A number for each kind of mark that the program sets; -1 for Weir's own marks. */
  markOf(detail: number): number {
    const text = this.recording.textOf(detail);
    const kind = text.startsWith(OWN_MARKS) ? undefined : markKind(text);
    if (kind === undefined) return -1;
    const known = this.markKinds.get(kind) ?? this.markKinds.size;
    this.markKinds.set(kind, known);
    return known;
  }

  get gauges(): Gauges | undefined {
    return this.recording.gauges.get(this.gpu);
  }

  get name(): string {
    return levelName({ process: this.recording, gpu: this.gpu, gauges: this.gauges! });
  }
}

export class RunPlanner {
  private readonly folder: string;
  private readonly voice: PlannerVoice;
  private readonly subjects: Planned[] = [];
  private worker: Worker | undefined;
  private readonly swaps: boolean;
  /** By process: batches of rows before its swapping settled; Infinity once it has. */
  private readonly unsettled = new Map<ProcessRecording, number>();
  private problem: string | undefined;
  private waiting = 0;

  /** Processes that swap are watched only once swapping has settled, since swapping changes their steps. */
  constructor(folder: string, voice: PlannerVoice, swaps = false) {
    this.folder = folder;
    this.voice = voice;
    this.swaps = swaps;
  }

  /** Takes checked rows of a process, in order. The buffer is not kept. */
  rows(recording: ProcessRecording, rows: Buffer): void {
    if (recording.owner.allocator !== 'weir' || (this.swaps && !this.hasSettled(recording))) return;
    const devices = devicesOf(rows);
    for (const subject of this.subjects) if (subject.recording === recording && !devices.has(subject.gpu)) this.afterRestart(subject, rows);
    for (const gpu of devices) {
      const subject = this.subjectOf(recording, gpu);
      if (subject.state !== 'watching') continue;
      if (subject.isNew || recording.dropped !== subject.dropped || this.waiting > MOST_WAITING) {
        this.restart(subject);
        continue;
      }
      const fresh = this.afterRestart(subject, rows);
      const packed = packRows(fresh, gpu, recording.defaultPool(gpu), (detail) => subject.markOf(detail));
      if (packed.length === 0) continue;
      const { reserved = 0, outside = 0 } = subject.gauges ?? {};
      // Gauges are as new as the last row that was there when they were read.
      const steps = recording.waiting === 0 ? subject.gauges?.steps : undefined;
      const streams = recording.streamsOf(gpu);
      this.waiting += packed.length / PACKED;
      this.post({ kind: 'rows', key: subject.key, rows: packed, levels: { reserved, outside }, steps, streams }, [
        packed.buffer as ArrayBuffer,
      ]);
    }
  }

  /** Judges from new gauges how plans are followed. */
  levels(): void {
    for (const subject of this.subjects) {
      const { gauges } = subject;
      if (gauges && !subject.recording.isFinished) this.judge(subject, gauges);
    }
  }

  reportOf(recording: ProcessRecording, gpu: number): PlanReport | undefined {
    const subject = this.subjects.find((candidate) => candidate.recording === recording && candidate.gpu === gpu);
    if (!subject) return undefined;
    const { state, plans, refused, left } = subject;
    const reason = state === 'following' ? undefined : (this.problem ?? subject.reason);
    return { state, reason, plans, refused, left, measured: measuredOf(subject) };
  }

  finish(): void {
    if (this.worker) dismiss(this.worker);
    this.worker = undefined;
  }

  private subjectOf(recording: ProcessRecording, gpu: number): Planned {
    const known = this.subjects.find((candidate) => candidate.recording === recording && candidate.gpu === gpu);
    if (known) return known;
    const subject = new Planned(this.subjects.length, recording, gpu);
    this.subjects.push(subject);
    this.start();
    const prefix = join(this.folder, String(recording.owner.pid));
    this.post({ kind: 'begin', key: subject.key, device: gpu, prefix, countsSteps: this.swaps });
    subject.isNew = this.swaps;
    return subject;
  }

  private hasSettled(recording: ProcessRecording): boolean {
    const batches = this.unsettled.get(recording) ?? 0;
    if (batches > MOST_UNSETTLED) return true;
    const settled = [...recording.gauges.values()].some(({ swap_settled }) => swap_settled > 0);
    this.unsettled.set(recording, settled ? Number.POSITIVE_INFINITY : batches + 1);
    return settled;
  }

  private start(): void {
    if (this.worker || this.problem !== undefined) return;
    try {
      const worker = new Worker(new URL('./plan-worker.js', import.meta.url));
      worker.on('message', (answer: PlanAnswer) => this.hear(answer));
      worker.on('error', (error) => this.fail(`the thread that plans failed: ${error.message}`));
      worker.on('exit', () => {
        if (this.worker === worker) this.fail('the thread that plans ended early');
      });
      // An idle thread must not keep weir alive.
      worker.unref();
      this.worker = worker;
    } catch (error) {
      this.fail(`no thread to plan in: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  /** Ends planning; the job goes on. */
  private fail(problem: string): void {
    if (this.problem !== undefined) return;
    this.problem = problem;
    this.worker = undefined;
    for (const subject of this.subjects) if (subject.state === 'watching') subject.state = 'stopped';
    this.voice.say(`no more plans are made, the job goes on: ${problem}`);
  }

  private post(request: PlanRequest, transfer: ArrayBuffer[] = []): void {
    this.worker?.postMessage(request, transfer);
  }

  private hear(answer: PlanAnswer): void {
    const subject = this.subjects[answer.key];
    if (!subject) return;
    switch (answer.kind) {
      case 'taken':
        this.waiting -= answer.rows;
        break;
      case 'planned':
        this.announce(subject, answer.generation, answer.facts);
        break;
      case 'known':
        // The process has this plan and may follow it again. Each time it is judged more patiently.
        subject.state = 'waiting';
        subject.patience = Math.min(MOST_PATIENCE, 2 * subject.patience);
        break;
      default:
        if (subject.state !== 'watching') break;
        if (answer.kind === 'declined') this.sayOnce(subject, `no plan so far: ${answer.reason}`);
        else if (answer.reason !== subject.reason) this.voice.detail(`${subject.name}: watching: ${answer.reason}`);
        subject.reason = answer.reason;
    }
  }

  private announce(subject: Planned, generation: number, facts: PlanFacts): void {
    const { recording } = subject;
    if (recording.isFinished || subject.state !== 'watching' || !recording.announcePlan(generation)) return;
    subject.plans.push(facts);
    subject.state = 'waiting';
    subject.reason = 'the job ended before the plan was followed';
    subject.bad = 0;
    subject.judged = undefined;
    const saved =
      facts.from > 0 ? `${formatBytes(facts.from)} -> ${formatBytes(facts.expected)}` : `${formatBytes(facts.expected)} expected`;
    this.voice.say(
      `${subject.name}: watched ${formatTimes(facts.steps, 'step', 'steps')} of ${facts.period.toLocaleString('en-US')} allocations and frees; planned: ${saved}`,
    );
    this.voice.detail(
      `${subject.name}: plan ${generation}: ${formatTimes(facts.requests, 'place', 'places')} in ${formatBytes(facts.footprint)}, ${formatTimes(facts.turns, 'turn', 'turns')}, found in ${Math.round(facts.detectMs)} ms, planned in ${Math.round(facts.planMs)} ms`,
    );
  }

  private judge(subject: Planned, gauges: Gauges): void {
    const plan = subject.plans.at(-1);
    if (!plan) return;
    if (gauges.plans_refused > subject.refused) {
      subject.refused = gauges.plans_refused;
      this.sayOnce(subject, 'the process refused a plan');
    }
    const now: Sample = {
      hits: gauges.planned_hits,
      requests: gauges.planned_hits + gauges.planned_misses,
      driverCalls: gauges.driver_calls,
      reserved: gauges.reserved,
    };
    if (subject.state === 'following') subject.fresh.push(now);
    subject.judged ??= now;
    const requests = now.requests - subject.judged.requests;
    if (requests < JUDGED_STEPS * plan.requests) return;
    const share = (now.hits - subject.judged.hits) / requests;
    subject.judged = now;
    if (share >= FOLLOWED) this.noteFollowed(subject, share);
    else if (++subject.bad >= subject.patience && subject.state !== 'watching' && subject.state !== 'stopped') this.noteLeft(subject);
    subject.fresh = [];
  }

  private noteFollowed(subject: Planned, share: number): void {
    subject.bad = 0;
    if (subject.state === 'following') {
      const samples = [...subject.samples, ...subject.fresh];
      subject.samples = samples.length > MOST_SAMPLES ? samples.filter((_, index) => index % 2 === 1) : samples;
      return;
    }
    // A watched process may get here too: an earlier shape has come back, and the process has kept its plan.
    subject.state = 'following';
    subject.reason = undefined;
    subject.samples = [];
    this.sayOnce(
      subject,
      `plan in use: it serves ${(100 * share).toFixed(1)} % of the requests`,
      `in use ${subject.plans.length} ${subject.left}`,
    );
  }

  /** Shapes have changed, or the plan was not for a step. The process keeps the plan in case the shapes come back. */
  private noteLeft(subject: Planned): void {
    if (subject.state === 'following') {
      subject.left++;
      this.sayOnce(subject, 'the job no longer follows the plan; watching it again', `left ${subject.plans.length} ${subject.left}`);
    }
    subject.reason = 'the job did not follow the plan';
    subject.bad = 0;
    subject.patience = Math.min(MOST_PATIENCE, 2 * subject.patience);
    if (subject.plans.length >= MOST_PLANS || this.problem !== undefined) {
      subject.state = 'stopped';
      return;
    }
    subject.state = 'watching';
    this.restart(subject);
  }

  private restart(subject: Planned): void {
    subject.dropped = subject.recording.dropped;
    subject.isNew = false;
    // Gauges are as new as the last row in the ring: watching begins after that row.
    subject.restart = { rowsLeft: subject.recording.waiting, live: subject.gauges?.live ?? 0 };
  }

  /** The rows after a restart; all of them if there was none. */
  private afterRestart(subject: Planned, rows: Buffer): Buffer {
    if (!subject.restart) return rows;
    const { rowsLeft, live } = subject.restart;
    const count = rows.length / EVENT_BYTES;
    if (rowsLeft >= count) {
      subject.restart = { rowsLeft: rowsLeft - count, live };
      return rows.subarray(rows.length);
    }
    subject.restart = undefined;
    this.post({ kind: 'restart', key: subject.key, live, least: subject.plans.at(-1)?.period ?? 0 });
    return rows.subarray(rowsLeft * EVENT_BYTES);
  }

  private sayOnce(subject: Planned, sentence: string, key = sentence): void {
    if (subject.told.has(key)) return;
    subject.told.add(key);
    this.voice.say(`${subject.name}: ${sentence}`);
  }
}

/** Figures of the last steps in which a plan was followed. */
function measuredOf({ samples, plans }: Planned): PlanReport['measured'] {
  const last = samples.at(-1);
  const plan = plans.at(-1);
  if (!last || !plan) return undefined;
  const enough = (sample: Sample) => last.requests - sample.requests >= LAST_STEPS * plan.requests;
  const first = Math.max(0, samples.findLastIndex(enough));
  const from = samples[first]!;
  const requests = last.requests - from.requests;
  return {
    reserved: samples.slice(first).reduce((most, { reserved }) => Math.max(most, reserved), 0),
    steps: Math.round(requests / plan.requests),
    driverCalls: last.driverCalls - from.driverCalls,
    share: requests > 0 ? (last.hits - from.hits) / requests : 1,
  };
}
