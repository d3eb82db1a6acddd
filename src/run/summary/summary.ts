// What a run comes to, in words and as JSON (schema 1, docs/json.md): per process and GPU what it took, what other
// allocators would have taken, and what recording cost.

import type { GaugeName } from '../../abi/ring.ts';
import { formatBytes } from '../../base/bytes.ts';
import { type Paint, PLAIN } from '../../report/text.ts';
import type { ChildEnd } from '../child/child.ts';
import type { PlanReport } from '../planning/run-planner.ts';
import { levelName, levelsOf, processName } from '../rings/levels.ts';
import type { ProcessRecording } from '../rings/process-recording.ts';
import type { Refusal } from '../rings/recorder.ts';
import type { Gauges } from '../rings/ring-layout.ts';
import type { SwapReport } from '../swapping/swap-watch.ts';
import type { GpuWhatIf, WhatIfResult } from './what-if.ts';

export interface RunSummary {
  readonly allocator: string;
  readonly command: readonly string[];
  readonly end: ChildEnd;
  readonly wallMs: number;
  readonly limit: number | undefined;
  readonly processes: readonly ProcessRecording[];
  /** How many processes loaded Weir and used no GPU. */
  readonly idleProcesses: number;
  /** By process: what other allocators would have needed, or why that is not known. */
  readonly whatIf: ReadonlyMap<ProcessRecording, readonly GpuWhatIf[] | string>;
  /** Who planned, if anybody did. */
  readonly planner?: { reportOf(process: ProcessRecording, gpu: number): PlanReport | undefined } | undefined;
  /** Who planned swaps, if anybody did. */
  readonly swapper?: { reportOf(process: ProcessRecording): SwapReport | undefined } | undefined;
  /** Whether files are kept, so that they can be named. */
  readonly keepsTraces: boolean;
  readonly recorderMs: number;
  readonly refusals: readonly Refusal[];
}

/** Why there is nothing to tell, where no process used a GPU. */
export function whyNothing({ idleProcesses }: RunSummary): string {
  return idleProcesses > 0 ? 'no process of the command used a GPU, so there is nothing to tell' : NOT_LOADED;
}

const NOT_LOADED =
  'no process of the command loaded Weir, so there is nothing to tell: it used no GPU, its Python ran with -I, -E or -S, its PyTorch is older than 2.5, or it cleared PYTHONPATH; weir doctor says what this machine has';

export function formatSummary(summary: RunSummary, paint: Paint = PLAIN): string[] {
  const lines: string[] = [];
  const levels = levelsOf(summary.processes);
  for (const level of levels) {
    const { process, gauges, gpu } = level;
    const answer = summary.whatIf.get(process);
    lines.push(`${paint.strong(levelName(level))}: ${peaks(gauges)}`);
    const costs = costsOf(gauges);
    if (costs !== '') lines.push(`  ${costs}`);
    const planned = summary.planner?.reportOf(process, gpu);
    if (summary.planner) lines.push(...planLines(planned, gauges).map((line) => `  ${line}`));
    if (summary.swapper) lines.push(...swapLines(summary.swapper.reportOf(process)).map((line) => `  ${line}`));
    if (gauges.ooms > 0) lines.push(`  ${paint.bad(`out of memory ${times(gauges.ooms)}`)}${limitWords(gauges)}`);
    if (typeof answer === 'string') lines.push(`  what other allocators would have needed is not known: ${answer}`);
    const whatIf = typeof answer === 'object' ? answer.find((candidate) => candidate.gpu === gpu) : undefined;
    if (whatIf) lines.push(...whatIfLines(whatIf, gauges, process).map((line) => `  ${line}`));
  }
  for (const process of summary.processes) lines.push(...recordingTrouble(process));
  if (summary.end.signal !== null) lines.push(paint.bad(`the command was ended by ${summary.end.signal}`));
  if (summary.processes.length > 0) lines.push(recorderLine(summary));
  const traces = tracesOf(summary);
  if (traces.length > 0) lines.push(`next: weir analyze ${traces.map(quoted).join(' ')}`, `      weir serve ${quoted(traces[0]!)} --open`);
  return lines;
}

export function summaryJson(summary: RunSummary): Record<string, unknown> {
  return {
    schema: 1,
    allocator: summary.allocator,
    command: summary.command,
    exitCode: summary.end.code,
    signal: summary.end.signal,
    wallMs: summary.wallMs,
    limit: summary.limit ?? null,
    recorder: {
      wallMs: summary.recorderMs,
      events: sum(summary.processes, (process) => process.events),
      dropped: sum(summary.processes, (process) => process.dropped),
    },
    idleProcesses: summary.idleProcesses,
    refusals: summary.refusals,
    processes: summary.processes.map((process) => processJson(process, summary)),
  };
}

function processJson(process: ProcessRecording, summary: RunSummary): Record<string, unknown> {
  const { owner } = process;
  const answer = summary.whatIf.get(process);
  return {
    pid: owner.pid,
    rank: owner.rank < 0 ? null : owner.rank,
    localRank: owner.localRank < 0 ? null : owner.localRank,
    worldSize: owner.worldSize < 0 ? null : owner.worldSize,
    allocator: owner.allocator,
    torch: owner.torchVersion,
    events: process.events,
    dropped: process.dropped,
    gaps: process.gaps,
    damagedEvents: process.counts.damaged,
    damage: process.damage ?? null,
    trace: summary.keepsTraces ? (process.file.path ?? null) : null,
    traceProblem: process.file.problem ?? null,
    swap: summary.swapper?.reportOf(process) ?? null,
    whatIfProblem: typeof answer === 'string' ? answer : null,
    gpus: [...process.gauges].map(([gpu, gauges]) => gpuJson(gpu, gauges, answer, summary.planner?.reportOf(process, gpu))),
  };
}

function gpuJson(
  gpu: number,
  gauges: Gauges,
  answer: readonly GpuWhatIf[] | string | undefined,
  report: PlanReport | undefined,
): Record<string, unknown> {
  const whatIf = typeof answer === 'object' ? answer.find((candidate) => candidate.gpu === gpu) : undefined;
  return {
    gpu,
    deviceBytes: gauges.total || null,
    limit: gauges.limit || null,
    peakLive: gauges.peak_live,
    peakAllocated: gauges.peak_allocated,
    peakReserved: gauges.peak_reserved,
    reservedOverLive: ratio(gauges),
    outside: gauges.outside,
    allocs: gauges.allocations,
    frees: gauges.frees,
    ooms: gauges.ooms,
    retries: gauges.retries,
    driver: { timeUs: gauges.driver_ns / 1e3, calls: gauges.driver_calls, failures: gauges.driver_failures },
    waits: gauges.waits,
    borrows: gauges.borrows,
    stitches: gauges.stitches,
    planned: { hits: gauges.planned_hits, misses: gauges.planned_misses, refused: gauges.plans_refused, ...planJson(report) },
    swapped: { out: gauges.swapped_out, in: gauges.swapped_in, stalls: gauges.swap_stalls, stallUs: gauges.swap_stall_ns / 1e3 },
    whatIf: whatIf ? { events: whatIf.events, replayError: whatIf.replayError, results: whatIf.results } : null,
  };
}

/** Files that somebody may open next, those of low ranks first. */
function tracesOf({ keepsTraces, processes }: RunSummary): string[] {
  if (!keepsTraces) return [];
  return [...processes]
    .filter(({ file, writtenEvents }) => file.path !== undefined && writtenEvents > 0)
    .sort((a, b) => a.owner.rank - b.owner.rank)
    .map(({ file }) => file.path!);
}

function peaks(gauges: Gauges): string {
  const outside = gauges.outside > 0 ? `, ${formatBytes(gauges.outside)} of it in private pools` : '';
  return `peak live ${formatBytes(gauges.peak_live)}, peak reserved ${formatBytes(gauges.peak_reserved)}${outside} (${ratio(gauges).toFixed(3)} x)`;
}

function costsOf(gauges: Gauges): string {
  const counted: [GaugeName, string, string][] = [
    ['waits', 'stream wait', 'stream waits'],
    ['borrows', 'borrow', 'borrows'],
    ['stitches', 'stitch', 'stitches'],
    ['retries', 'retry', 'retries'],
  ];
  const parts = counted
    .filter(([name]) => gauges[name] > 0)
    .map(([name, one, many]) => `${count(gauges[name])} ${gauges[name] === 1 ? one : many}`);
  // Under PyTorch's own allocator calls are counted and not timed.
  if (gauges.driver_ns > 0) parts.unshift(`driver time ${milliseconds(gauges.driver_ns / 1e6)} in ${count(gauges.driver_calls)} calls`);
  else if (gauges.driver_calls > 0) parts.unshift(`${count(gauges.driver_calls)} driver calls`);
  return parts.join(', ');
}

/** How planning went: what was expected against what came, or why there was nothing to plan. */
function planLines(report: PlanReport | undefined, gauges: Gauges): string[] {
  const plan = report?.plans.at(-1);
  if (!report || !plan) return [`no plan: ${report?.reason ?? 'the job did too little to be watched'}`];
  const lines: string[] = [];
  const { measured } = report;
  const held = measured ? `, measured ${formatBytes(measured.reserved)}` : '';
  lines.push(`planned ${formatBytes(plan.from)} -> ${formatBytes(plan.expected)}${held}`);
  const requests = gauges.planned_hits + gauges.planned_misses;
  const share = requests > 0 ? `${((100 * gauges.planned_hits) / requests).toFixed(1)} %` : 'none';
  const last = measured ? `; in the last ${count(measured.steps)} steps ${calls(measured.driverCalls)}` : '';
  lines.push(`${share} of ${count(requests)} requests since at their places${last}`);
  if (report.plans.length > 1) lines.push(`${count(report.plans.length)} plans, since the steps changed`);
  if (report.reason !== undefined) lines.push(`at the end no plan was followed: ${report.reason}`);
  return lines;
}

/** How swapping went: what was expected against what came, what it moved and what it cost. */
function swapLines(report: SwapReport | undefined): string[] {
  if (!report) return ['nothing swapped: the process has not said why'];
  const lines: string[] = [];
  const { expected } = report;
  if (expected.peak !== undefined)
    lines.push(`swapped: expected peak ${formatBytes(expected.peak)}, measured ${formatBytes(report.peakAllocated)} allocated`);
  const { plain, planned } = report.stepUs ?? {};
  if (plain && planned) lines.push(`a step took ${(planned / 1e3).toFixed(1)} ms, ${(plain / 1e3).toFixed(1)} ms without swaps`);
  const waits = report.stalls === 0 ? 'no stall' : `${count(report.stalls)} stalls of ${(report.stallUs / 1e3).toFixed(1)} ms in all`;
  lines.push(
    `${formatBytes(report.bytesOut)} out, ${formatBytes(report.bytesIn)} back in ${count(report.stepsPlanned)} planned steps; ${waits}, ${report.misses === 1 ? 'one miss' : `${count(report.misses)} misses`}`,
  );
  const { parametersOut = 0, gradientsOut = 0 } = report;
  if (parametersOut > 0) lines.push(`of that ${formatBytes(parametersOut)} were parameters, ${formatBytes(gradientsOut)} gradients`);
  const { reliefs = 0, relievedBytes = 0 } = report;
  if (reliefs > 0) lines.push(`${formatBytes(relievedBytes)} left in haste, ${times(reliefs)}, for requests that found no memory`);
  if (report.checked) lines.push(`debugging: ${count(report.checked)} copies came back as they had left`);
  if (report.stopped !== null) lines.push(`swapping ended early: ${report.stopped}`);
  return lines;
}

function calls(value: number): string {
  return value === 0 ? 'no driver call' : value === 1 ? 'one driver call' : `${count(value)} driver calls`;
}

function planJson(report: PlanReport | undefined): Record<string, unknown> {
  if (!report) return {};
  const { state, reason, plans, left, measured } = report;
  return { state, reason: reason ?? null, left, plans, measured: measured ?? null };
}

function whatIfLines(whatIf: GpuWhatIf, gauges: Gauges, process: ProcessRecording): string[] {
  const lines = whatIf.results.map(
    (result) => `${result.allocator} would have needed ${formatBytes(result.peakReserved)}${comparison(result, gauges)}`,
  );
  if (process.isCut || process.events - process.counts.damaged > whatIf.events)
    lines.push(`(replayed: the first ${count(whatIf.events)} of ${count(process.events)} events; --what-if-events N looks at more)`);
  if (whatIf.replayError && whatIf.replayError.differing > 0)
    lines.push(
      `(the model of PyTorch's allocator differs from this run in ${count(whatIf.replayError.differing)} of ${count(whatIf.replayError.compared)} events)`,
    );
  return lines;
}

function comparison(result: WhatIfResult, gauges: Gauges): string {
  const parts: string[] = [];
  // Requests that failed were served there: the two figures are not of the same run.
  if (gauges.ooms > 0) parts.push('to serve the requests that failed, too');
  else if (gauges.peak_reserved > 0) {
    const percent = (100 * (result.peakReserved - gauges.peak_reserved)) / gauges.peak_reserved;
    parts.push(`${percent > 0 ? '+' : ''}${percent.toFixed(1)} %`);
  }
  if (result.ooms !== null && result.ooms > 0) {
    const capacity = gauges.limit > 0 ? gauges.limit : gauges.total;
    parts.push(`and would have run out of memory within ${formatBytes(capacity)}`);
  }
  return parts.length === 0 ? '' : ` (${parts.join(', ')})`;
}

function recordingTrouble(process: ProcessRecording): string[] {
  const name = processName(process);
  const lines: string[] = [];
  if (process.dropped > 0)
    lines.push(
      `${name}: ${count(process.dropped)} of ${count(process.events + process.dropped)} events were not recorded, in ${count(process.gaps)} gaps: they came too fast; --ring-rows makes more room`,
    );
  if (process.counts.damaged > 0) lines.push(`${name}: ${count(process.counts.damaged)} events made no sense and were left out`);
  return lines;
}

/** What recording took on our side; in the process an event takes some 60 ns (bench/runtime.c) and no waiting. */
function recorderLine({ processes, recorderMs, wallMs, keepsTraces }: RunSummary): string {
  const events = sum(processes, (process) => process.events);
  const share = wallMs > 0 ? ` (${((100 * recorderMs) / wallMs).toFixed(1)} % of one core)` : '';
  const isWhole = processes.every((process) => process.dropped === 0 && !(keepsTraces && process.isCut));
  const lost = isWhole ? ', none lost' : '';
  return `recorded ${count(events)} events of ${processes.length === 1 ? 'one process' : `${processes.length} processes`} in ${milliseconds(recorderMs)}${share}, outside of the job${lost}`;
}

function limitWords(gauges: Gauges): string {
  return gauges.limit > 0 ? ` within the limit of ${formatBytes(gauges.limit)}` : '';
}

function ratio(gauges: Gauges): number {
  return gauges.peak_live > 0 ? gauges.peak_reserved / gauges.peak_live : 1;
}

function sum(processes: readonly ProcessRecording[], of: (process: ProcessRecording) => number): number {
  return processes.reduce((total, process) => total + of(process), 0);
}

function times(value: number): string {
  return value === 1 ? 'once' : `${count(value)} times`;
}

function milliseconds(value: number): string {
  return value >= 10_000 ? `${(value / 1e3).toFixed(1)} s` : `${value.toFixed(value < 10 ? 1 : 0)} ms`;
}

function count(value: number): string {
  return value.toLocaleString('en-US');
}

/** Fit to be pasted into a shell. */
function quoted(path: string): string {
  return /^[\w./%+=:@-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
}
