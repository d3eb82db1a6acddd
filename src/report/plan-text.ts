// Plans for people: what a plan needs against what it could need, and a small picture of it in the terminal.
import { formatBytes } from '../base/bytes.ts';
import type { Buffer, Layout } from '../plan/offsets/buffers.ts';
import type { OffsetsPlan } from '../plan/offsets/planner.ts';
import type { Fault } from '../plan/offsets/verifier.ts';
import { buffersOfStep } from '../plan/steps/step.ts';
import type { FoundStep, NoStep } from '../plan/steps/step-plan.ts';
import type { FollowedPlan } from '../plan/steps/verifier.ts';
import type { SwapStep } from '../plan/swaps/accesses.ts';
import { loadCurve, wrap } from '../plan/swaps/gaps.ts';
import type { SwapPlan } from '../plan/swaps/planner.ts';

const PICTURE_COLUMNS = 64;
const PICTURE_ROWS = 12;
const SHADES = [' ', '░', '▒', '▓', '█'];
const BARS = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/** A plan for a list of buffers. */
export function offsetsPlanText(buffers: readonly Buffer[], plan: OffsetsPlan): string {
  return lines([...offsetsLines(buffers.length, plan), '', ...layoutPicture(buffers, plan)]);
}

/** A plan for the step of a recorded run. */
export function stepPlanText(found: FoundStep, plan: OffsetsPlan): string {
  const { step, peak, smartPoolTotal, period } = found;
  const total = plan.footprint + step.wholeRunBytes;
  const repeats = period.stretches.reduce((sum, { from, to }) => sum + Math.floor((to - from) / period.length) + 1, 0);
  return lines([
    `step       ${step.period} allocations and frees, seen ${repeats} times (by ${period.by}); ${step.blocks.length} blocks${step.turns > 1 ? `, offsets alternate over ${step.turns} steps` : ''}`,
    `whole run  ${formatBytes(step.wholeRunBytes)} that stay from step to step`,
    ...offsetsLines(step.blocks.length * step.turns, plan),
    `in all     ${formatBytes(total)}, ${percentOver(total, peak)} the peak of ${formatBytes(peak)} live (SmartPool: ${formatBytes(smartPoolTotal)}, ${percentOver(smartPoolTotal, peak)})`,
    '',
    ...layoutPicture(buffersOfStep(step, 1), plan),
  ]);
}

export function notPeriodicText({ reason }: NoStep): string {
  return lines([
    `not periodic: ${reason}.`,
    'A plan needs steps that repeat; for this recording an allocator that adapts is the better choice (weir replay).',
  ]);
}

export function swapPlanText(step: SwapStep, plan: SwapPlan): string {
  const moved = plan.swaps.length === 0 ? 'nothing' : `${plan.swaps.length} blocks, ${formatBytes(plan.bytesMoved)} out and back per step`;
  const text = [
    `step       ${(step.periodUs / 1000).toFixed(1)} ms, ${step.blocks.length} blocks, peak ${formatBytes(plan.peak)}`,
    `zero stall ${formatBytes(plan.zeroStallLimit)} (-${(plan.reduction * 100).toFixed(1)} %); no schedule gets below ${formatBytes(plan.bounds.bandwidth)} with this link, ${formatBytes(plan.bounds.instant)} with any`,
  ];
  // Without a plan there is nothing to draw. Lower limits make the job wait, and no plan can be written for them.
  if (!plan.verified) return lines(text);
  if (plan.limit !== plan.zeroStallLimit) text.push(`limit      ${formatBytes(plan.limit)}`);
  text.push(`moves      ${moved}`, `footprint  ${formatBytes(plan.footprint)} as one arena, at fixed offsets; verified`);
  return lines([...text, '', ...loadPicture(step, plan)]);
}

/** Why there is no swap plan for the limit that was asked for. */
export function noSwapPlanText({ limit, zeroStallLimit, simulation }: SwapPlan): string {
  const waiting = simulation.overruns + simulation.faults > 0 ? ', even if the job waits' : ' unless the job waits';
  return `no swap plan keeps ${formatBytes(limit)}${waiting}; without waiting, the lowest limit is ${formatBytes(zeroStallLimit)}`;
}

/** The outcome of `weir verify`. */
export function verificationText(what: string, faults: readonly Fault[], followed?: FollowedPlan): string {
  const head = faults.length === 0 ? `correct: ${what}` : `wrong: ${what}`;
  const share =
    followed && followed.planned > 0
      ? [
          `The step repeats ${followed.repetitions} times${followed.noisy > 0 ? `, and ${followed.noisy} times with differences` : ''}. Requests as planned: ${followed.followed} of ${followed.planned}.`,
        ]
      : [];
  return lines([head, ...share, ...faults.map((fault) => `  ${fault.message}`)]);
}

/** `--json` of a plan for offsets. */
export function offsetsPlanJson(buffers: number, plan: OffsetsPlan, periodic: boolean): object {
  const { lowerBound, footprint, ratio, wallMs } = plan;
  return { schema: 1, buffers, lowerBound, footprint, ratio, periodic, verified: true, wallMs, optimal: plan.optimal, by: plan.by };
}

/** The same where there is no step to plan. */
export function notPeriodicJson({ reason }: NoStep): object {
  return { schema: 1, buffers: 0, lowerBound: 0, footprint: 0, ratio: 0, periodic: false, verified: false, wallMs: 0, reason };
}

/** `--json` of a swap plan. */
export function swapPlanJson(plan: SwapPlan): object {
  const { peak, zeroStallLimit, reduction, limit, overhead, bytesMoved, curve, verified, wallMs, footprint, bounds } = plan;
  return { schema: 1, peak, zeroStallLimit, reduction, limit, overhead, bytesMoved, curve, verified, wallMs, footprint, bounds };
}

function offsetsLines(buffers: number, plan: OffsetsPlan): string[] {
  const optimal = plan.optimal ? '; no smaller one exists' : '';
  return [
    `layout     ${formatBytes(plan.footprint)} for ${buffers} buffers, ${percentOver(plan.footprint, plan.lowerBound)} the lower bound of ${formatBytes(plan.lowerBound)}${optimal}`,
    `found by   ${plan.by} in ${plan.wallMs < 1000 ? `${Math.round(plan.wallMs)} ms` : `${(plan.wallMs / 1000).toFixed(1)} s`}; verified`,
  ];
}

function percentOver(value: number, base: number): string {
  const percent = (value / base - 1) * 100;
  if (value === base) return 'exactly';
  return percent < 0 ? `${(-percent).toFixed(2)} % below` : `${percent.toFixed(2)} % above`;
}

/** Offsets upward, time to the right; the darker a cell, the more of it is in use. */
export function layoutPicture(
  buffers: readonly Buffer[],
  layout: Layout,
  columns: number = PICTURE_COLUMNS,
  rows: number = PICTURE_ROWS,
): string[] {
  let from = Number.POSITIVE_INFINITY;
  let to = Number.NEGATIVE_INFINITY;
  for (const { spans } of buffers) {
    from = Math.min(from, spans[0]!.from);
    to = Math.max(to, spans.at(-1)!.to);
  }
  const filled = new Float64Array(columns * rows);
  const width = (to - from) / columns;
  const height = layout.footprint / rows;
  buffers.forEach((buffer, index) => {
    const bottom = layout.offsets[index]! / height;
    const top = (layout.offsets[index]! + buffer.size) / height;
    for (const span of buffer.spans) {
      const left = (span.from - from) / width;
      const right = (span.to - from) / width;
      for (let row = Math.floor(bottom); row < Math.min(rows, top); row++) {
        const share = Math.min(top, row + 1) - Math.max(bottom, row);
        for (let column = Math.floor(left); column < Math.min(columns, right); column++) {
          const at = row * columns + column;
          filled[at] = filled[at]! + share * (Math.min(right, column + 1) - Math.max(left, column));
        }
      }
    }
  });
  const picture: string[] = [];
  for (let row = rows - 1; row >= 0; row--) {
    const cells = Array.from(
      filled.subarray(row * columns, (row + 1) * columns),
      (share) => SHADES[Math.min(SHADES.length - 1, Math.ceil(share * (SHADES.length - 1) - 0.01))] ?? ' ',
    );
    picture.push(`${row === rows - 1 ? formatBytes(layout.footprint).padStart(11) : ' '.repeat(11)} │${cells.join('').trimEnd()}`);
  }
  return [...picture, `${'0'.padStart(11)} └${'─'.repeat(columns)} time`];
}

/** Bytes over the step, without and with swaps. */
function loadPicture(step: SwapStep, plan: SwapPlan, columns = PICTURE_COLUMNS): string[] {
  const curve = loadCurve(step);
  const at = (bytes: Float64Array, column: number) => {
    const from = (column / columns) * step.periodUs;
    const to = ((column + 1) / columns) * step.periodUs;
    let most = 0;
    for (let index = 0; index < curve.timeUs.length; index++) {
      const end = curve.timeUs[index + 1] ?? step.periodUs;
      if (curve.timeUs[index]! < to && end > from) most = Math.max(most, bytes[index]!);
    }
    return most;
  };
  const lowered = curve.bytes.slice();
  for (const swap of plan.swaps) {
    curve.timeUs.forEach((time, index) => {
      if (wrap(time - swap.outEndUs, step.periodUs) < swap.inStartUs - swap.outEndUs) lowered[index] = lowered[index]! - swap.size;
    });
  }
  const bar = (bytes: number) => BARS[Math.max(0, Math.min(BARS.length - 1, Math.round((bytes / plan.peak) * (BARS.length - 1))))]!;
  const row = (bytes: Float64Array) => Array.from({ length: columns }, (_, column) => bar(at(bytes, column))).join('');
  return [`without    │${row(curve.bytes)}│ ${formatBytes(plan.peak)}`, `with swaps │${row(lowered)}│ ${formatBytes(plan.limit)}`];
}

function lines(parts: readonly string[]): string {
  return `${parts.join('\n')}\n`;
}
