// `weir diff A B`: what the second run holds beyond the first, by category and by call site. Folders hold one recording per rank.
import { Command, Option } from 'commander';
import { InputError } from '../../base/errors.ts';
import { printable } from '../../base/printable.ts';
import { ALIGNMENTS, type AlignmentKind } from '../../report/alignment.ts';
import { type Diff, diffTraces, growthOf } from '../../report/diff.ts';
import { diffJson } from '../../report/diff-json.ts';
import { type DiffRule, describeDiffMetrics, parseDiffRule } from '../../report/diff-rules.ts';
import { SCHEMA } from '../../report/json.ts';
import { formatBreach, formatUnjudged } from '../../report/rules.ts';
import { formatDiff, formatRankDiffs } from '../../report/terminal/diff.ts';
import type { Trace } from '../../trace/trace.ts';
import { ExitCode } from '../exit-code.ts';
import { loadRecording, pickGpus, requireDemand } from '../input.ts';
import { requireOneInput } from '../input-pieces.ts';
import { asArgument, gpuOption, jsonOption, quietOption, RECORDING } from '../options.ts';
import { paintFor } from '../paint.ts';
import { createProgress, type Progress } from '../progress.ts';
import { pairRecordings, type RankPair, type RankPairs } from '../rank-folders.ts';

interface DiffCommandOptions {
  readonly by?: AlignmentKind;
  readonly gpu?: number;
  readonly failIf: DiffRule[];
  readonly all?: boolean;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

export function diffCommand(): Command {
  return new Command('diff')
    .summary('show which lines of a program hold more memory than in another run')
    .description('Shows what run B holds beyond run A at the same step: which category, which line, and what grows from step to step.')
    .argument('<A>', `the run before: ${RECORDING}; or a folder with one recording per rank`)
    .argument('<B>', 'the run after, or another rank of the same run')
    .addOption(
      new Option(
        '--by <moment>',
        'compare at the peak of a common step, at the peaks of the runs, or at their ends; by default the first of the three that both have',
      ).choices(ALIGNMENTS),
    )
    .addOption(gpuOption())
    .addOption(
      new Option('--fail-if <rule>', "exit with code 1 if this is true, like 'growth>2%' or 'leaks>0'; can be repeated")
        .argParser((text, rules: DiffRule[]) => [...rules, asArgument(parseDiffRule)(text)])
        .default([], 'no rule'),
    )
    .option('--all', 'show every call site that changed')
    .addOption(jsonOption())
    .addOption(quietOption())
    .addHelpText(
      'before',
      `Examples:
  weir diff yesterday.weir today.weir
  weir diff main.pickle branch.pickle --fail-if 'growth>2%' --fail-if 'leaks>0'
  weir diff runs/before/ runs/after/
`,
    )
    .addHelpText(
      'after',
      `\nFigures for --fail-if:\n${describeDiffMetrics()}\nSizes and percentages need their unit. A rule about a figure that is unknown exits with code 3.`,
    )
    .action(diff);
}

async function diff(before: string, after: string, options: DiffCommandOptions): Promise<void> {
  const progress = createProgress(options.quiet ?? false);
  requireOneInput([before, after]);
  const found = pairRecordings(before, after);
  const diffs: Diff[] = [];
  const alone = [...found.alone];
  for (const [index, pair] of found.pairs.entries()) {
    const compared = await diffFiles(pair, options, progressOf(progress, index, found));
    diffs.push(...compared.diffs);
    alone.push(...compared.alone);
  }
  const paired: RankPairs = { ...found, alone };
  progress.clear();
  const worst = diffs.reduce((most, other) => (growthOf(other) > growthOf(most) ? other : most));
  if (options.json) process.stdout.write(`${JSON.stringify(jsonOf(diffs, worst, paired))}\n`);
  else {
    const paint = paintFor(process.stdout);
    const ranks =
      diffs.length > 1
        ? `${formatRankDiffs(diffs, worst, paint)}${pairingWords(paired)}The rank that grew most:\n\n`
        : pairingWords(paired);
    process.stdout.write(ranks + formatDiff(worst, { paint, isWhole: options.all }));
  }
  judge(diffs, paired.alone, options.failIf);
}

/**
 * Recordings of several GPUs are compared GPU by GPU. Only one pair of files is in memory at a time.
 * `alone`: GPUs that only one of them has.
 */
async function diffFiles(
  { before, after }: RankPair,
  options: DiffCommandOptions,
  progress: Progress,
): Promise<{ readonly diffs: Diff[]; readonly alone: string[] }> {
  const [first, second] = [await tracesOf(before, options, progress), await tracesOf(after, options, progress)];
  const pairs = pairGpus(first, second);
  if (pairs.length === 0)
    throw new InputError(
      `${before} has GPU ${gpusOf(first)} and ${after} has GPU ${gpusOf(second)}; record the same ones, or choose one with --gpu`,
    );
  const isPaired = new Set(pairs.flat());
  const aloneIn = (file: string, traces: readonly Trace[]) =>
    traces.filter((trace) => !isPaired.has(trace)).map(({ device }) => `${file}, GPU ${device}`);
  const diffs = pairs.map(([a, b]) => {
    const found = diffTraces(
      { trace: a, file: before },
      { trace: b, file: after },
      { by: options.by, onProgress: (done, doing) => progress.update(done, `${after}: ${doing}`) },
    );
    if (options.by === 'step' && found.alignment.by !== 'step') throw new InputError(`${before} and ${after}: ${found.alignment.reason}`);
    return found;
  });
  return { diffs, alone: [...aloneIn(before, first), ...aloneIn(after, second)] };
}

async function tracesOf(file: string, options: DiffCommandOptions, progress: Progress): Promise<readonly Trace[]> {
  const traces = pickGpus(await loadRecording(file, progress), options.gpu, file);
  requireDemand(traces, file, 'memory');
  return traces;
}

/** By the number of the GPU; two recordings of one GPU each belong together whatever its number. */
function pairGpus(before: readonly Trace[], after: readonly Trace[]): (readonly [Trace, Trace])[] {
  if (before.length === 1 && after.length === 1) return [[before[0]!, after[0]!]];
  return before.flatMap((trace) => {
    const other = after.find(({ device }) => device === trace.device);
    return other ? [[trace, other] as const] : [];
  });
}

function gpusOf(traces: readonly Trace[]): string {
  return traces.map(({ device }) => device).join(', ');
}

function progressOf(progress: Progress, index: number, { pairs }: RankPairs): Progress {
  if (pairs.length === 1) return progress;
  return { update: (fraction, doing) => progress.update((index + fraction) / pairs.length, doing), clear: () => progress.clear() };
}

function jsonOf(diffs: readonly Diff[], worst: Diff, { alone, leftOut, by }: RankPairs): unknown {
  if (diffs.length === 1 && alone.length === 0 && by === 'files') return diffJson(worst);
  return { schema: SCHEMA, ranks: diffs.map(diffJson), worst: diffJson(worst), pairedBy: by, alone, leftOut };
}

function pairingWords({ alone, leftOut, by }: RankPairs): string {
  if (by === 'files' && alone.length === 0) return '';
  const words: Record<RankPairs['by'], string> = {
    files: 'GPUs are paired by their numbers.',
    names: 'Recordings are paired by their names.',
    ranks: 'Recordings are paired by the ranks in their names.',
    order: 'Recordings are paired in their order: their names do not tell which belong together.',
  };
  const without = alone.length === 0 ? '' : ` Without a partner: ${alone.map(printable).join('; ')}.`;
  const failures = leftOut.length === 0 ? '' : ` Left out, as files about out-of-memory errors: ${leftOut.map(printable).join(', ')}.`;
  return `${words[by]}${without}${failures}\n\n`;
}

/** One line per broken rule, and per rule that cannot be judged. */
function judge(diffs: readonly Diff[], alone: readonly string[], rules: readonly DiffRule[]): void {
  if (alone.length > 0 && rules.length > 0) {
    process.stderr.write(`weir: no rule can be judged for recordings without a partner: ${alone.map(printable).join('; ')}\n`);
    process.exitCode = ExitCode.Input;
  }
  for (const found of diffs) {
    const where = diffs.length > 1 ? `${printable(found.after.file)}, GPU ${found.after.gpu}: ` : '';
    for (const rule of rules) {
      const breach = rule.breach(found);
      if (breach) {
        process.stderr.write(`weir: ${where}${formatBreach(breach)}\n`);
        process.exitCode ??= ExitCode.RuleBroken;
      } else if (!rule.isKnown(found)) {
        process.stderr.write(`weir: ${where}${formatUnjudged({ figure: rule.figure, rule: rule.text })}\n`);
        process.exitCode = ExitCode.Input;
      }
    }
  }
}
