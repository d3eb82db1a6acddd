// Sentences about the largest value that fits, for the terminal and the page.
import { formatBytes } from '../../base/bytes.ts';
import { formatMonomial, type Point } from '../../fit/monomials.ts';
import type { FitPrediction, FitRow, PredictedPeak } from '../../fit/prediction.ts';
import type { Largest } from '../../fit/search.ts';
import type { SizeFunction } from '../../fit/size-function.ts';
import { formatCount, formatShare, formatSizeRange } from './numbers.ts';

/** Below this share, blocks without a function change no answer that is worth a sentence. */
const NOTABLE = 0.001;

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

/** `23`, `23 to 25`, `none`, `more than 16,777,216`. */
export function largestWords({ sure, possible }: { readonly sure: Largest; readonly possible: Largest }): string {
  const written = (largest: Largest) =>
    largest.value === 0 ? 'none' : `${largest.isBounded ? '' : 'more than '}${formatCount(largest.value)}`;
  return sure.value === possible.value ? written(sure) : `${written(sure)} to ${written(possible)}`;
}

export function peakWords(peak: PredictedPeak): string {
  return formatSizeRange(peak.upper, peak.lower === peak.upper ? undefined : peak.lower);
}

/** What the next larger value would need. */
export function nextWords(row: FitRow, parameter: number): string {
  return `${formatCount(row.nextPeak.point[parameter]!)}: ${peakWords(row.nextPeak)}`;
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

/** What the runs explain, and what to do if that is not enough. */
export function learnedSentences({ learned, points }: FitPrediction): string[] {
  const { bytes, settled, unsettled, unpaired, vanished } = learned;
  const largest = pointWords(points.at(-1)!);
  const lines = [
    `The runs settle the sizes of ${formatShare(settled, bytes)} of ${formatBytes(bytes)} that the run of ${largest} requests.`,
  ];
  if (unpaired > bytes * NOTABLE)
    lines.push(
      `${formatBytes(unpaired)} (${formatShare(unpaired, bytes)}) are requested in the run of ${largest} alone: the program does something else there.`,
    );
  if (unsettled > bytes * NOTABLE)
    lines.push(`${formatBytes(unsettled)} (${formatShare(unsettled, bytes)}) follow no function that the runs settle.`);
  if (vanished > bytes * NOTABLE)
    lines.push(`${formatBytes(vanished)} of the run of ${pointWords(points.at(-2)!)} have no counterpart in the run of ${largest}.`);
  if (unpaired + unsettled + vanished > bytes * NOTABLE) lines.push('For a narrower answer, add a run nearer to it.');
  else if (points.length === 2) lines.push('A third run would check this.');
  return lines;
}

/** How many epochs fail, for one cell of a table. */
export function failingWords(share: number): string {
  return share === 0 ? 'fits in all' : `fails in ${(100 * share).toFixed(1)} %`;
}
