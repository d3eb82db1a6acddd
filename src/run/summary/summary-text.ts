// The summary of a run for the terminal: per process and GPU what it took, what other allocators would have taken, and
// what recording cost.

import type { SwapBound, SwapExpectation, SwapReport } from '../../abi/exchange.ts';
import type { GaugeName } from '../../abi/ring.ts';
import { formatBytes } from '../../base/bytes.ts';
import { printable } from '../../base/printable.ts';
import { type Paint, PLAIN } from '../../report/terminal/paint.ts';
import { otherSentence, pinnedWords } from '../../report/words/failure.ts';
import { formatChange, formatCount, formatMs, formatShare, formatTimes } from '../../report/words/numbers.ts';
import { shellWord } from '../../report/words/shell.ts';
import { boundReason, distanceReason } from '../../report/words/swap-bound.ts';
import { otherParts } from '../../trace/other-memory.ts';
import type { FailureReport } from '../failures/failure-watch.ts';
import type { PlanReport } from '../planning/run-planner.ts';
import { levelName, levelsOf, processName } from '../rings/levels.ts';
import type { ProcessRecording } from '../rings/process-recording.ts';
import type { Gauges } from '../rings/ring-layout.ts';
import { eventsOf, overheadOf, type RunSummary, whatIfOf } from './summary.ts';
import type { GpuWhatIf, WhatIfResult } from './what-if.ts';

export function formatSummary(summary: RunSummary, paint: Paint = PLAIN): string[] {
  const lines: string[] = [];
  for (const level of levelsOf(summary.processes)) {
    const { process, gauges, gpu } = level;
    const answer = summary.whatIf.get(process);
    const whatIf = whatIfOf(answer, gpu);
    const details = [
      ...costLines(gauges),
      ...(summary.planner ? planLines(summary.planner.reportOf(process, gpu), gauges) : []),
      ...(summary.swapper ? swapLines(summary.swapper.reportOf(process), process) : []),
      ...oomLines(gauges, summary.failures?.reportOf(process), gpu, paint),
      ...otherLines(summary, process, gpu),
      ...(typeof answer === 'string' ? [`other allocators could not be compared: ${answer}`] : []),
      ...(whatIf ? whatIfLines(whatIf, gauges, process) : []),
    ];
    lines.push(`${paint.strong(levelName(level))}: ${peakWords(gauges)}`, ...details.map((line) => `  ${line}`));
  }
  lines.push(...unknownOtherLines(summary), ...firstFailureLines(summary, paint), ...accessLines(summary));
  for (const process of summary.processes) lines.push(...pinnedLines(summary, process), ...troubleLines(summary, process));
  if (summary.end.signal !== null) lines.push(paint.bad(`the command was ended by ${summary.end.signal}`));
  if (summary.processes.length > 0) lines.push(recorderLine(summary));
  lines.push(...nextLines(tracesOf(summary)));
  return lines;
}

/** Recordings that one line can name. */
const MOST_NAMED = 64;

function nextLines(traces: readonly string[]): string[] {
  if (traces.length === 0) return [];
  const named = traces.length > MOST_NAMED ? traces.slice(0, 1) : traces;
  const more = traces.length > MOST_NAMED ? `  # the first of ${formatCount(traces.length)} recordings` : '';
  return [`next: weir analyze ${named.map(shellWord).join(' ')}${more}`, `      weir serve ${shellWord(traces[0]!)} --open`];
}

/** Why the summary is empty, if no process used a GPU. `python` is the command's, if it cannot find PyTorch. */
export function emptyReason({ idleProcesses }: Pick<RunSummary, 'idleProcesses'>, python?: string): string {
  if (idleProcesses > 0) return 'no process of the command used a GPU, so there is nothing to report';
  if (python !== undefined)
    return `PyTorch is not installed in ${python}, so no process of the command loaded Weir and there is nothing to report. Activate the environment of the job; weir doctor checks this machine`;
  return 'no process of the command loaded Weir, so there is nothing to report. Possible reasons: it used no GPU; Python ran with -I, -E or -S; PyTorch is older than 2.5; PYTHONPATH was cleared. weir doctor checks this machine';
}

/** The recordings to look at next, low ranks first. */
function tracesOf({ keepsTraces, processes }: RunSummary): string[] {
  if (!keepsTraces) return [];
  return [...processes]
    .filter(({ file, writtenEvents }) => file.path !== undefined && writtenEvents > 0)
    .sort((a, b) => a.owner.rank - b.owner.rank)
    .map(({ file }) => file.path!);
}

function peakWords(gauges: Gauges): string {
  const outside = gauges.outside > 0 ? `, ${formatBytes(gauges.outside)} of it in private pools` : '';
  return `peak live ${formatBytes(gauges.peak_live)}, peak reserved ${formatBytes(gauges.peak_reserved)}${outside} (overhead ${overheadOf(gauges).toFixed(3)})`;
}

function costLines(gauges: Gauges): string[] {
  const counted: [GaugeName, string, string][] = [
    ['waits', 'stream wait', 'stream waits'],
    ['borrows', 'borrow', 'borrows'],
    ['stitches', 'stitch', 'stitches'],
    ['retries', 'retry', 'retries'],
  ];
  const parts = counted.filter(([name]) => gauges[name] > 0).map(([name, one, many]) => formatTimes(gauges[name], one, many));
  // PyTorch's own allocator counts its driver calls and does not time them.
  if (gauges.driver_ns > 0)
    parts.unshift(`driver time ${duration(gauges.driver_ns / 1e6)} in ${formatTimes(gauges.driver_calls, 'call', 'calls')}`);
  else if (gauges.driver_calls > 0) parts.unshift(formatTimes(gauges.driver_calls, 'driver call', 'driver calls'));
  return parts.length > 0 ? [parts.join(', ')] : [];
}

/** Expected against measured, or why there was no plan. */
function planLines(report: PlanReport | undefined, gauges: Gauges): string[] {
  const plan = report?.plans.at(-1);
  if (!report || !plan) return [`no plan: ${report?.reason ?? 'the job made too few requests to find a step'}`];
  const { measured } = report;
  const reserved = measured ? `, measured ${formatBytes(measured.reserved)}` : '';
  const requests = gauges.planned_hits + gauges.planned_misses;
  const last = measured ? `; in the last ${formatTimes(measured.steps, 'step', 'steps')} ${driverCalls(measured.driverCalls)}` : '';
  const lines = [
    `planned ${formatBytes(plan.from)} -> ${formatBytes(plan.expected)}${reserved}`,
    requests > 0
      ? `since then the plan served ${formatShare(gauges.planned_hits, requests)} of ${formatTimes(requests, 'request', 'requests')}${last}`
      : `since then the plan served no request${last}`,
  ];
  if (report.plans.length > 1) lines.push(`${formatCount(report.plans.length)} plans, since the steps changed`);
  if (report.reason !== undefined) lines.push(`no plan in use at the end: ${report.reason}`);
  return lines;
}

/** Expected against measured, what was moved, and what it cost. */
function swapLines(report: SwapReport | undefined, process: ProcessRecording): string[] {
  // A process that still runs reports only when it asks for a summary.
  if (!report) return process.isFinished ? ['nothing swapped: the process gave no reason'] : [];
  const lines: string[] = [];
  const { expected, stepsPlanned, parametersOut, gradientsOut, reliefs, relievedBytes, stepsStreamed } = report;
  if (expected) lines.push(`swapped: expected peak ${formatBytes(expected.peak)}, measured ${formatBytes(report.peakAllocated)} allocated`);
  if (expected?.bound) lines.push(...boundLines(expected, expected.bound, report.peakAllocated));
  const { plain, planned } = report.stepUs ?? {};
  if (plain && planned) lines.push(`step time: ${formatMs(planned)} with swaps, ${formatMs(plain)} without`);
  const stalls =
    report.stalls === 0 ? 'no stalls' : `${formatTimes(report.stalls, 'stall', 'stalls')} (${formatMs(report.stallUs)} in total)`;
  lines.push(
    `swapped out ${formatBytes(report.bytesOut)}, swapped in ${formatBytes(report.bytesIn)} in ${formatTimes(stepsPlanned, 'planned step', 'planned steps')}; ${stalls}, ${formatTimes(report.misses, 'miss', 'misses')}`,
  );
  if (parametersOut > 0) lines.push(`of that, parameters: ${formatBytes(parametersOut)}, gradients: ${formatBytes(gradientsOut)}`);
  if (stepsStreamed > 0)
    lines.push(`optimizer state did not fit: it passed through in chunks in ${formatTimes(stepsStreamed, 'step', 'steps')}`);
  if (reliefs > 0) lines.push(`emergency swap-outs: ${formatCount(reliefs)} (${formatBytes(relievedBytes)} in total)`);
  if (report.checked) lines.push(`debugging: ${formatTimes(report.checked, 'copy', 'copies')} came back unchanged`);
  if (report.stopped !== null) lines.push(`swapping ended early: ${report.stopped}`);
  return lines;
}

/** The least peak that this link allows, and why the run is above it. */
function boundLines({ peak, share }: SwapExpectation, bound: SwapBound, measured: number): string[] {
  const lines = [`least peak without waiting on this link: ${formatBytes(bound.peak)}; ${boundReason(bound)}`];
  const distance = distanceReason({ bound: bound.peak, expected: peak, measured, share });
  if (distance !== undefined) lines.push(distance);
  return lines;
}

function oomLines(gauges: Gauges, report: FailureReport | undefined, gpu: number, paint: Paint): string[] {
  if (gauges.ooms === 0) return [];
  const limit = gauges.limit > 0 ? ` within the limit of ${formatBytes(gauges.limit)}` : '';
  const [first, last] = report?.gpu === gpu ? report.files : [];
  const files = first === undefined ? '' : `; the first: ${first}${last === undefined ? '' : `, the last: ${last}`}`;
  return [`${paint.bad('out of memory')}: ${formatTimes(gauges.ooms, 'request', 'requests')} failed${limit}${files}`];
}

/** If several processes failed, which one was the first: the others often fail because of it. */
function firstFailureLines({ failures, processes }: RunSummary, paint: Paint): string[] {
  const failed = processes.filter((process) => failures?.reportOf(process));
  const first = failures?.firstOf(processes);
  if (failed.length < 2 || !first) return [];
  const report = failures!.reportOf(first)!;
  const times = failed.filter((process) => process !== first).map((process) => failures!.reportOf(process)!.timeUs);
  const seconds = (Math.min(...times) - report.timeUs) / 1e6;
  const site = report.site === undefined ? '' : ` at ${printable(report.site)}`;
  return [`${paint.bad(`${processName(first)} failed first`)}${site}, ${seconds.toFixed(3)} s before the next of ${failed.length}`];
}

/** Memory of the GPU that is not PyTorch's, at its peak. */
function otherLines({ otherMemory }: RunSummary, process: ProcessRecording, gpu: number): string[] {
  const peak = otherMemory?.peakOf(process, gpu);
  return peak ? [otherSentence(otherParts(peak))] : [];
}

/** One line about all GPUs of which it is not known, since the reason is the same for all ranks. */
function unknownOtherLines({ otherMemory, processes }: RunSummary): string[] {
  if (!otherMemory) return [];
  const levels = levelsOf(processes);
  const unknown = levels.filter(({ process, gpu }) => !otherMemory.peakOf(process, gpu));
  if (unknown.length === 0) return [];
  const of = unknown.length === levels.length ? '' : ` of ${unknown.map(levelName).join('; ')}`;
  return [`memory that is not PyTorch's${of}: unknown, because NVML told nothing about it`];
}

/** Steps of some programs cannot be seen. Then a swap plan has nothing to go by, and the user must know before asking for one. */
function accessLines({ expectsAccesses, processes }: RunSummary): string[] {
  if (!expectsAccesses || processes.length === 0 || processes.some(({ counts }) => counts.operators > 0)) return [];
  return [
    'no accesses were recorded: they begin after the second step, which ends with step() of an optimizer. Programs without one call weir_gpu.step() after each step',
  ];
}

function pinnedLines({ pinned }: RunSummary, process: ProcessRecording): string[] {
  const host = pinned?.of(process);
  return host && host.peakHeld > 0 ? [`${processName(process)}: ${pinnedWords(host)}`] : [];
}

function driverCalls(value: number): string {
  return value === 0 ? 'no driver call' : formatTimes(value, 'driver call', 'driver calls');
}

function whatIfLines(whatIf: GpuWhatIf, gauges: Gauges, process: ProcessRecording): string[] {
  const lines = whatIf.results.map(
    (result) => `${result.allocator} would have needed ${formatBytes(result.peakReserved)}${comparison(result, gauges)}`,
  );
  if (process.isCut || process.events - process.counts.damaged > whatIf.events)
    lines.push(
      `(replayed only the first ${formatCount(whatIf.events)} of ${formatCount(process.events)} events; --what-if-events N replays more)`,
    );
  if (whatIf.replayError && whatIf.replayError.differing > 0)
    lines.push(
      `(the model of PyTorch's allocator differs from this run in ${formatCount(whatIf.replayError.differing)} of ${formatCount(whatIf.replayError.compared)} events)`,
    );
  return lines;
}

function comparison(result: WhatIfResult, gauges: Gauges): string {
  const parts: string[] = [];
  // The replay serves requests that failed in the run, so the two peaks cannot be compared.
  if (gauges.ooms > 0) parts.push('with the failed requests served');
  else if (gauges.peak_reserved > 0) parts.push(formatChange(result.peakReserved, gauges.peak_reserved));
  if (result.ooms !== null && result.ooms > 0) {
    const capacity = gauges.limit > 0 ? gauges.limit : gauges.total;
    parts.push(`out of memory in ${formatBytes(capacity)}`);
  }
  return parts.length === 0 ? '' : ` (${parts.join(', ')})`;
}

function troubleLines({ keepsTraces }: RunSummary, process: ProcessRecording): string[] {
  const name = processName(process);
  const lines: string[] = [];
  if (process.dropped > 0)
    lines.push(
      `${name}: ${formatCount(process.dropped)} of ${formatCount(process.events + process.dropped)} events were not recorded, in ${formatTimes(process.gaps, 'gap', 'gaps')}: they came too fast; use a larger --ring-rows`,
    );
  if (process.counts.damaged > 0)
    lines.push(`${name}: ${formatTimes(process.counts.damaged, 'damaged event was', 'damaged events were')} left out`);
  if (keepsTraces && process.isCut)
    lines.push(`${name}: the recording ends after ${formatCount(process.writtenEvents)} of ${formatCount(process.events)} events`);
  if (process.stacksLost > 0)
    lines.push(
      `${name}: ${formatTimes(process.stacksLost, 'request has', 'requests have')} no call stack, because there was no room for more`,
    );
  return lines;
}

/** What recording cost in this process. In the job an event costs some 60 ns (bench/runtime.c) and never waits. */
function recorderLine(summary: RunSummary): string {
  const { processes, recorderMs, wallMs, keepsTraces } = summary;
  const share = wallMs > 0 ? ` (${formatShare(recorderMs, wallMs)} of one core)` : '';
  const { recorded, dropped, written } = eventsOf(summary);
  const isCut = keepsTraces && processes.some((process) => process.isCut);
  const events = isCut
    ? `${formatCount(written)} of ${formatTimes(recorded, 'event', 'events')}`
    : formatTimes(recorded, 'event', 'events');
  const who = processes.length === 1 ? 'one process' : `${processes.length} processes`;
  return `recorded ${events} of ${who} in ${duration(recorderMs)}${share}, outside of the job${isCut || dropped > 0 ? '' : ', none lost'}`;
}

function duration(milliseconds: number): string {
  return milliseconds >= 10_000 ? `${(milliseconds / 1e3).toFixed(1)} s` : `${milliseconds.toFixed(milliseconds < 10 ? 1 : 0)} ms`;
}
