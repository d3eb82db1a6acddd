// Small pictures of plans for the terminal: the layout of a step, and memory over the step with and without swaps.
import { formatBytes } from '../../base/bytes.ts';
import type { Buffer, Layout } from '../../plan/offsets/buffers.ts';
import type { SwapStep } from '../../plan/swaps/accesses.ts';
import { loadCurve, wrap } from '../../plan/swaps/gaps.ts';
import type { SwapPlan } from '../../plan/swaps/planner.ts';

const PICTURE_COLUMNS = 64;
const PICTURE_ROWS = 12;
const SHADES = [' ', '░', '▒', '▓', '█'];
const BARS = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

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
export function loadPicture(step: SwapStep, plan: SwapPlan, columns: number = PICTURE_COLUMNS): string[] {
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
