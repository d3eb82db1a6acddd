// The summary of a run as JSON (schema 1, docs/json.md).
import { SCHEMA } from '../../report/json.ts';
import type { OtherMemory } from '../../trace/trace.ts';
import type { FailureReport } from '../failures/failure-watch.ts';
import type { PlanReport } from '../planning/run-planner.ts';
import type { ProcessRecording } from '../rings/process-recording.ts';
import type { Gauges } from '../rings/ring-layout.ts';
import { eventsOf, overheadOf, type RunSummary, whatIfOf } from './summary.ts';
import type { GpuWhatIf } from './what-if.ts';

export function summaryJson(summary: RunSummary): Record<string, unknown> {
  const { recorded, dropped } = eventsOf(summary);
  return {
    schema: SCHEMA,
    allocator: summary.allocator,
    command: summary.command,
    exitCode: summary.end.code,
    signal: summary.end.signal,
    wallMs: summary.wallMs,
    limit: summary.limit ?? null,
    recorder: {
      wallMs: summary.recorderMs,
      events: recorded,
      dropped,
    },
    idleProcesses: summary.idleProcesses,
    refusals: summary.refusals,
    firstFailure: firstFailureJson(summary),
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
    stacksLost: process.stacksLost,
    damagedEvents: process.counts.damaged,
    damage: process.damage ?? null,
    trace: summary.keepsTraces ? (process.file.path ?? null) : null,
    traceEvents: summary.keepsTraces ? process.writtenEvents : null,
    traceProblem: process.file.problem ?? null,
    swap: summary.swapper?.reportOf(process) ?? null,
    failures: failuresJson(summary.failures?.reportOf(process)),
    pinned: summary.pinned?.of(process) ?? null,
    whatIfProblem: typeof answer === 'string' ? answer : null,
    gpus: [...process.gauges].map(([gpu, gauges]) =>
      gpuJson(gpu, gauges, answer, summary.planner?.reportOf(process, gpu), summary.otherMemory?.peakOf(process, gpu)),
    ),
  };
}

function gpuJson(
  gpu: number,
  gauges: Gauges,
  answer: readonly GpuWhatIf[] | string | undefined,
  report: PlanReport | undefined,
  otherMemory: OtherMemory | undefined,
): Record<string, unknown> {
  const whatIf = whatIfOf(answer, gpu);
  return {
    gpu,
    deviceBytes: gauges.total || null,
    limit: gauges.limit || null,
    peakLive: gauges.peak_live,
    peakAllocated: gauges.peak_allocated,
    peakReserved: gauges.peak_reserved,
    reservedOverLive: overheadOf(gauges),
    outside: gauges.outside,
    otherMemory: otherMemory ?? null,
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

function failuresJson(report: FailureReport | undefined): Record<string, unknown> | null {
  if (!report) return null;
  const { count, timeUs, gpu, asked, site, files, problem } = report;
  return { count, timeUs, gpu, asked, site: site ?? null, files, problem: problem ?? null };
}

function firstFailureJson({ failures, processes }: RunSummary): Record<string, unknown> | null {
  const first = failures?.firstOf(processes);
  return first
    ? { pid: first.owner.pid, rank: first.owner.rank < 0 ? null : first.owner.rank, ...failuresJson(failures!.reportOf(first)) }
    : null;
}

function planJson(report: PlanReport | undefined): Record<string, unknown> {
  if (!report) return {};
  const { state, reason, plans, left, measured } = report;
  return { state, reason: reason ?? null, left, plans, measured: measured ?? null };
}
