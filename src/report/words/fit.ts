// Sentences about the largest value that fits, for the terminal and the page.
import { formatBytes } from '../../base/bytes.ts';
import { differenceOf, NOTABLE } from '../../fit/model.ts';
import { formatMonomial, type Point } from '../../fit/monomials.ts';
import { type FitPrediction, type FitRow, type PredictedPeak, SWAP_AUTO } from '../../fit/prediction.ts';
import type { Largest } from '../../fit/search.ts';
import type { SizeFunction } from '../../fit/size-function.ts';
import { formatCount, formatShare, formatSizeRange } from './numbers.ts';

/** `4` or `4 x 512`. */
export function pointWords(point: Point): string {
  return point.map(formatCount).join(' x ');
}

export function listWords(words: readonly string[]): string {
  return words.length < 2 ? (words[0] ?? '') : `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`;
}

export function fitTitle({ gpuBytes, names, line, points }: FitPrediction): string {
  const others = names.flatMap((name, index) => (index === line.parameter ? [] : [` at ${name} ${formatCount(line.point[index]!)}`]));
  return `The largest ${names[line.parameter]} that fits in ${formatBytes(gpuBytes)}${others.join('')}, from runs of ${listWords(points.map(pointWords))}`;
}

/** `23`, `23 to 25`, `23 or more`, `none`, `more than 16,777,216`. */
export function largestWords({ sure, possible }: { readonly sure: Largest; readonly possible: Largest }): string {
  const written = (largest: Largest) =>
    largest.value === 0 ? 'none' : `${largest.isBounded ? '' : 'more than '}${formatCount(largest.value)}`;
  if (sure.value === possible.value) return written(sure);
  return possible.isBounded ? `${written(sure)} to ${written(possible)}` : `${written(sure)} or more`;
}

export function peakWords(peak: PredictedPeak): string {
  return formatSizeRange(peak.upper, peak.lower === peak.upper ? undefined : peak.lower);
}

/** What the next larger value would need; empty: that depends on the GPU. */
export function nextWords({ nextPeak }: FitRow, parameter: number): string {
  return nextPeak ? `${formatCount(nextPeak.point[parameter]!)}: ${peakWords(nextPeak)}` : '';
}

/** How a size depends on the parameters. */
export function functionWords({ kind, monomial, isChecked }: SizeFunction, names: readonly string[]): string {
  if (kind === 'constant') return 'constant';
  if (!monomial || kind === 'open') return 'not settled';
  const product = formatMonomial(monomial, names);
  if (kind === 'rounded') return `${product}, rounded up`;
  return kind === 'sum' ? `${product} and a part that grows less${isChecked ? '' : ', not settled'}` : product;
}

export function growthTitle({ growth, growthPoint, names, line }: FitPrediction): string {
  const more = line.multiple === 1 ? `each further ${names[line.parameter]}` : `each ${line.multiple} more of ${names[line.parameter]}`;
  return `Of ${formatBytes(growth.bytes)} live at the peak of ${pointWords(growthPoint)}, ${formatBytes(growth.constantBytes)} are constant; ${more} adds ${formatBytes(growth.growth)}`;
}

/** What the row with swapping means, or why there is none. */
export function swapSentences({ rows, tellsState }: FitPrediction): string[] {
  if (!rows.some(({ allocator }) => allocator === 'weir')) return [];
  if (!tellsState) return [`${SWAP_AUTO}: not predicted. The runs do not tell what is optimizer state; those of weir record do.`];
  const swap = rows.find((row) => row.swap)?.swap;
  if (!swap || swap.bytes === 0) return [`${SWAP_AUTO}: as weir, because the runs have no optimizer state that could leave.`];
  return [
    `${SWAP_AUTO}: if memory runs short, ${formatBytes(swap.bytes)} of optimizer state can be swapped out between steps, and ${formatCount(swap.largest.value)} fits.`,
    `  If that costs more than 1 % of a step, it is given up after some steps, and only what fits on weir goes on.`,
  ];
}

/** What the runs explain, and what to do if that is not enough. */
export function learnedSentences({ learned, points, repeats, rows }: FitPrediction): string[] {
  const { bytes, settled, unsettled, unpaired, vanished, doubted, scratch } = learned;
  const largest = pointWords(points.at(-1)!);
  const lines = [
    `The runs settle the sizes of ${formatShare(settled, bytes)} of ${formatBytes(bytes)} that the run of ${largest} requests.`,
  ];
  if (repeats === 0) lines.push('No step of it repeats, so it is replayed as it is.');
  if (unpaired > bytes * NOTABLE)
    lines.push(
      `${formatBytes(unpaired)} (${formatShare(unpaired, bytes)}) are requested in the run of ${largest} alone: the program does something else there.`,
    );
  if (unsettled - doubted > bytes * NOTABLE)
    lines.push(`${formatBytes(unsettled - doubted)} (${formatShare(unsettled - doubted, bytes)}) follow no function that the runs settle.`);
  if (scratch > bytes * NOTABLE)
    lines.push(
      `${formatBytes(scratch)} (${formatShare(scratch, bytes)}) are scratch memory, requested and freed within one operation: its size depends on the kernel that is chosen.`,
    );
  if (doubted > 0)
    lines.push(
      `The runs are not the same program for ${formatShare(Math.round(differenceOf(learned) * bytes), bytes)} of the bytes, and ${formatShare(doubted, bytes)} are known from only two of them: try values nearer to the answer, or a third one.`,
    );
  if (vanished > bytes * NOTABLE)
    lines.push(`${formatBytes(vanished)} of the run of ${pointWords(points.at(-2)!)} have no counterpart in the run of ${largest}.`);
  if (doubted > 0) return lines;
  const isInterval = rows.some(({ sure, possible, swap }) => !swap && sure.value !== possible.value);
  if (unpaired + unsettled + vanished > bytes * NOTABLE || isInterval) lines.push('For a narrower answer, add a run nearer to it.');
  else if (points.length === 2) lines.push('A third run would check this.');
  return lines;
}

/** How many epochs fail, for one cell of a table. */
export function failingWords(share: number): string {
  return share === 0 ? 'fits in all' : share === 1 ? 'fails in all' : `fails in ${(100 * share).toFixed(1)} %`;
}
