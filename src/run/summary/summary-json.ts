// The summary of a run as JSON (schema 1, docs/json.md).
import { SCHEMA } from '../../report/json.ts';
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

function planJson(report: PlanReport | undefined): Record<string, unknown> {
  if (!report) return {};
  const { state, reason, plans, left, measured } = report;
  return { state, reason: reason ?? null, left, plans, measured: measured ?? null };
}
