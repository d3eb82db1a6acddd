// The answer of `weir fit` as text: the largest value on each allocator, what grows, and what the runs explain.
import { formatBytes } from '../../base/bytes.ts';
import { printable } from '../../base/printable.ts';
import type { DrawRow } from '../../fit/draws.ts';
import type { FitModel } from '../../fit/model.ts';
import type { FitPrediction, FrontierRow } from '../../fit/prediction.ts';
import { NO_STACK } from '../../trace/symbols.ts';
import { labelledSites } from '../fit-sites.ts';
import {
  failingWords,
  fitTitle,
  functionWords,
  growthTitle,
  largestWords,
  learnedSentences,
  nextWords,
  peakWords,
  pointWords,
  swapSentences,
} from '../words/fit.ts';
import { formatCount, formatTimes } from '../words/numbers.ts';
import { type Paint, PLAIN } from './paint.ts';
import { type Column, formatTable } from './table.ts';

const INDENT = '  ';
const MOST_SITES = 8;

/** Epochs with lengths drawn from samples, and where these are from. */
export interface Draws {
  readonly source: string;
  readonly samples: number;
  readonly rows: readonly DrawRow[];
}

export interface FitSections {
  readonly frontier?: readonly FrontierRow[] | undefined;
  readonly draws?: Draws | undefined;
  /** Besides those of the recordings. */
  readonly warnings?: readonly string[] | undefined;
}

export function formatFit(
  model: FitModel,
  prediction: FitPrediction,
  { frontier = [], draws, warnings = [] }: FitSections = {},
  paint: Paint = PLAIN,
): string {
  const sections = [
    answerLines(prediction, paint),
    askedLines(prediction, paint),
    frontierLines(prediction, frontier, paint),
    drawLines(prediction, draws, paint),
    growthLines(model, prediction, paint),
    learnedSentences(prediction),
    [...model.warnings, ...warnings].map((warning) => `${paint.bad('warning:')} ${printable(warning)}`),
  ];
  return `${sections
    .filter((section) => section.length > 0)
    .map((section) => section.join('\n'))
    .join('\n\n')}\n`;
}

function answerLines(prediction: FitPrediction, paint: Paint): string[] {
  const { rows, gpuBytes, names, line } = prediction;
  const columns: Column[] = [
    { title: 'allocator', align: 'left' },
    { title: names[line.parameter]!, align: 'right' },
    { title: 'peak reserved', align: 'right' },
    { title: 'left', align: 'right' },
    { title: 'retries', align: 'right' },
    { title: 'the next needs', align: 'left' },
  ];
  const cells = rows.map((row) => [
    row.allocator,
    largestWords(row),
    row.onGpu ? formatBytes(row.onGpu.peakReserved) : '',
    row.onGpu ? formatBytes(gpuBytes - row.onGpu.peakReserved) : '',
    row.onGpu && rows.some(({ onGpu }) => onGpu && onGpu.retries > 0) ? formatCount(row.onGpu.retries) : '',
    nextWords(row, line.parameter),
  ]);
  const intervals = rows.filter(({ sure, possible, swap }) => !swap && sure.value !== possible.value);
  const [bounded, unbounded] = [true, false].map((isBounded) => intervals.some(({ possible }) => possible.isBounded === isBounded));
  return [
    paint.strong(`${fitTitle(prediction)}:`),
    ...table(columns, cells, paint),
    paint.dim(`${INDENT}the next needs: peak reserved of the next larger ${names[line.parameter]} without a limit.`),
    ...(rows.some(({ onGpu }) => onGpu && onGpu.retries > 0)
      ? [paint.dim(`${INDENT}retries: requests that are served only after cached memory was given back, which takes time.`)]
      : []),
    ...swapSentences(prediction).map((sentence) => paint.dim(`${INDENT}${sentence}`)),
    ...(bounded ? [paint.dim(`${INDENT}A to B: A fits whatever the unsettled blocks do, and B + 1 does not.`)] : []),
    ...(unbounded
      ? [paint.dim(`${INDENT}A or more: A fits whatever the unsettled blocks do. If they need no more than now, larger values fit, too.`)]
      : []),
  ];
}

function askedLines({ rows }: FitPrediction, paint: Paint): string[] {
  const asked = rows.filter(({ swap }) => !swap);
  const points = rows[0]?.asked.map(({ point }) => point) ?? [];
  if (points.length === 0) return [];
  const columns: Column[] = [
    { title: 'allocator', align: 'left' },
    ...points.map((point): Column => ({ title: pointWords(point), align: 'right' })),
  ];
  return [
    paint.strong('Peak reserved at:'),
    ...table(
      columns,
      asked.map((row) => [row.allocator, ...row.asked.map(peakWords)]),
      paint,
    ),
  ];
}

function frontierLines({ names, line }: FitPrediction, frontier: readonly FrontierRow[], paint: Paint): string[] {
  if (frontier.length === 0) return [];
  const other = line.parameter === 0 ? 1 : 0;
  const columns: Column[] = [
    { title: names[other]!, align: 'right' },
    ...frontier[0]!.largest.map(({ allocator }): Column => ({ title: allocator, align: 'right' })),
  ];
  const cells = frontier.map(({ at, largest }) => [formatCount(at), ...largest.map(largestWords)]);
  return [paint.strong(`The largest ${names[line.parameter]} by ${names[other]}:`), ...table(columns, cells, paint)];
}

function drawLines({ names, line }: FitPrediction, draws: Draws | undefined, paint: Paint): string[] {
  if (!draws) return [];
  const { rows, source, samples } = draws;
  const epochs = rows[0]?.epochs ?? 0;
  const columns: Column[] = [
    { title: names[line.parameter]!, align: 'right' },
    ...(rows[0]?.failing ?? []).map(({ allocator }): Column => ({ title: allocator, align: 'left' })),
  ];
  const cells = rows.map(({ batch, failing }) => [formatCount(batch), ...failing.map(({ share }) => failingWords(share))]);
  const title = `The longest step of ${formatCount(epochs)} epochs, with lengths drawn from ${printable(source)} (${formatTimes(samples, 'sample', 'samples')}):`;
  return [paint.strong(title), ...table(columns, cells, paint)];
}

function growthLines({ template }: FitModel, prediction: FitPrediction, paint: Paint): string[] {
  const { growth, names } = prediction;
  const sites = labelledSites(template.trace, growth).filter((site) => site.adds > 0);
  if (sites.length === 0) return [];
  const columns: Column[] = [
    { title: 'adds', align: 'right' },
    { title: 'live', align: 'right' },
    { title: 'blocks', align: 'right' },
    { title: 'grows with', align: 'left' },
    { title: 'requested at', align: 'left' },
  ];
  const hasStacks = growth.sites.some(({ stack }) => stack !== NO_STACK);
  const cells = sites
    .slice(0, MOST_SITES)
    .map((site) => [
      formatBytes(site.adds),
      formatBytes(site.bytes),
      formatCount(site.allocations),
      functionWords(site.size, names),
      hasStacks ? printable(site.label) : '',
    ]);
  const more = sites.length > MOST_SITES ? [paint.dim(`${INDENT}and ${formatCount(sites.length - MOST_SITES)} more`)] : [];
  return [paint.strong(`${growthTitle(prediction)}:`), ...table(columns, cells, paint), ...more];
}

function table(columns: readonly Column[], rows: readonly (readonly string[])[], paint: Paint): string[] {
  const [head, ...body] = formatTable(columns, rows);
  return [`${INDENT}${paint.dim(head!)}`, ...body.map((line) => `${INDENT}${line}`)];
}
