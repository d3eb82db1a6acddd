// `weir analyze FILE...`: the verdict, the what-if table and the advice. Several files are the ranks of one job.

import { Command, Option } from 'commander';
import type { AllocatorChoice } from '../../allocator/registry.ts';
import { printable } from '../../base/printable.ts';
import { analyzeTrace } from '../../report/analysis.ts';
import { analysisJson, SCHEMA } from '../../report/json.ts';
import { type RankRow, rankRow, spreadOf, worstRank } from '../../report/ranks.ts';
import { describeMetrics, formatBreach, formatUnjudged, parseRule, type Rule } from '../../report/rules.ts';
import { formatAnalysis } from '../../report/terminal/analysis.ts';
import { formatRanks } from '../../report/terminal/ranks.ts';
import { LEAST_WIDTH, timelinePicture } from '../../report/terminal/timeline-picture.ts';
import type { Trace } from '../../trace/trace.ts';
import { ExitCode } from '../exit-code.ts';
import { loadRecording, pickGpus, requireDemand } from '../input.ts';
import { requireOneInput } from '../input-pieces.ts';
import {
  ALLOCATOR_HELP,
  allocatorOption,
  asArgument,
  capacityOption,
  gpuOption,
  jsonOption,
  pytorchOption,
  quietOption,
  RECORDINGS,
} from '../options.ts';
import { paintFor } from '../paint.ts';
import { createProgress, type Progress } from '../progress.ts';
import { withVersion } from '../pytorch-version.ts';
import { withoutLinks } from '../rank-folders.ts';
import { analyzeRanks } from '../rank-pool.ts';

interface AnalyzeOptions {
  readonly capacity?: number;
  readonly gpu?: number;
  readonly pytorch?: string;
  readonly allocator?: AllocatorChoice[];
  readonly failIf: Rule[];
  readonly smallest?: boolean;
  readonly all?: boolean;
  readonly timeline?: boolean;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

/** The width of a picture that does not go to a terminal. */
const DEFAULT_WIDTH = 100;

export function analyzeCommand(): Command {
  return new Command('analyze')
    .summary('show where memory was lost, and which setting gets it back')
    .description('Shows where a recorded run lost memory, what each allocator would have needed, and what to set.')
    .argument('<files...>', `${RECORDINGS}; several files are the ranks of one job`)
    .addOption(capacityOption())
    .addOption(gpuOption())
    .addOption(pytorchOption())
    .addOption(allocatorOption('allocators to compare, instead of the usual ones'))
    .addOption(
      new Option('--fail-if <rule>', "exit with code 1 if this is true, like 'peak>70GiB' or 'fits>40GiB'; can be repeated")
        .argParser(collectRules)
        .default([], 'no rule'),
    )
    .option('--all', 'show every column, and the allocators of historical interest (cnmem, gmlake)')
    .option('--timeline', 'draw live and reserved memory over the run, even if the output is not a terminal')
    .option('--no-timeline', 'do not draw it')
    .option('--smallest', 'search for the smallest GPU that the run fits on, even if the recording is long')
    .option('--no-smallest', 'do not search for the smallest GPU')
    .addOption(jsonOption())
    .addOption(quietOption())
    .addHelpText(
      'before',
      `Examples:
  weir analyze snapshot.pickle
  weir analyze rank*.pickle --capacity 80GiB --fail-if 'fragmentation>15%'
`,
    )
    .addHelpText(
      'after',
      `${ALLOCATOR_HELP}\n\nFigures for --fail-if:\n${describeMetrics()}\nSizes and percentages need their unit. With --capacity, peak, lost, fragmentation, ooms and\nretries are what the recorded allocator would do on that GPU.`,
    )
    .action(analyze);
}

function collectRules(text: string, rules: Rule[]): Rule[] {
  return [...rules, asArgument(parseRule)(text)];
}

async function analyze(named: string[], options: AnalyzeOptions): Promise<void> {
  const progress = createProgress(options.quiet ?? false);
  requireOneInput(named);
  const files = withoutLinks(named);
  if (files.length > 1) {
    await analyzeSeveral(files, options, progress);
    return;
  }
  const file = files[0]!;
  const traces = withVersion(pickGpus(await loadRecording(file, progress), options.gpu, file), options.pytorch);
  requireDemand(traces, file, 'memory');
  if (traces.length === 1) {
    const row = showOne(traces[0]!, file, options, progress);
    judge([row]);
    return;
  }
  const light = { capacity: options.capacity, allocators: [], findSmallest: false, findRecordedSmallest: needsSmallest(options) };
  const rows = traces.map((trace) => rankRow(analyzeTrace(trace, light), file, options.failIf, trace));
  const worst = worstRank(rows);
  showRanks(rows, traces.find((trace) => trace.device === worst.gpu)!, options, progress);
}

/** All files together may not fit in memory. Workers keep only a row of each, and the worst is read again. */
async function analyzeSeveral(files: string[], options: AnalyzeOptions, progress: Progress): Promise<void> {
  const rules = options.failIf.map((rule) => rule.text);
  const { gpu, capacity, pytorch } = options;
  const tasks = files.map((file, index) => ({ index, file, gpu, capacity, pytorch, rules }));
  const { answers, kept } = await analyzeRanks(tasks, progress);
  progress.clear();
  for (const { problem } of answers) {
    if (problem === undefined) continue;
    process.stderr.write(`weir: ${printable(problem)}\n`);
    process.exitCode = ExitCode.Input;
  }
  const rows = answers.flatMap((answer) => answer.rows);
  if (rows.length === 0) return;
  const worst = worstRank(rows);
  const recording = kept?.file === worst.file ? kept.recording : await loadRecording(worst.file, progress);
  const [trace] = withVersion(pickGpus(recording, worst.gpu, worst.file), pytorch);
  showRanks(rows, trace!, options, progress);
}

function showRanks(rows: readonly RankRow[], worstTrace: Trace, options: AnalyzeOptions, progress: Progress): void {
  const worst = worstRank(rows);
  if (options.json) {
    const full = analysisJson(fullAnalysis(worstTrace, worst.file, options, progress), worst.file);
    const ranks = rows.map((row) => analysisJson(row.analysis, row.file));
    const spread = { peakReserved: spreadOf(rows.map((row) => row.peakReserved)), peakLive: spreadOf(rows.map((row) => row.peakLive)) };
    process.stdout.write(`${JSON.stringify({ schema: SCHEMA, ranks, spread, worst: full })}\n`);
  } else {
    progress.clear();
    process.stdout.write(`${formatRanks(rows, paintFor(process.stdout))}\nThe worst rank in full:\n\n`);
    showOne(worstTrace, worst.file, options, progress);
  }
  judge(rows);
}

function showOne(trace: Trace, file: string, options: AnalyzeOptions, progress: Progress): RankRow {
  const analysis = fullAnalysis(trace, file, options, progress);
  if (options.json) process.stdout.write(`${JSON.stringify(analysisJson(analysis, file))}\n`);
  else
    process.stdout.write(
      formatAnalysis(analysis, file, { paint: paintFor(process.stdout), timeline: timelineFor(trace, options), isWide: options.all }),
    );
  return rankRow(analysis, file, options.failIf);
}

function fullAnalysis(trace: Trace, file: string, options: AnalyzeOptions, progress: Progress): ReturnType<typeof analyzeTrace> {
  const analysis = analyzeTrace(trace, {
    capacity: options.capacity,
    allocators: options.allocator,
    findSmallest: options.smallest,
    findRecordedSmallest: needsSmallest(options),
    // Programs get every row, as ever.
    withHistory: options.all === true || options.json === true,
    source: file,
    onProgress: (done, doing) => progress.update(done, `${file}: ${doing}`),
  });
  progress.clear();
  return analysis;
}

function needsSmallest({ failIf }: AnalyzeOptions): boolean {
  return failIf.some((rule) => rule.needsSmallest);
}

/** At a terminal that is wide enough, or when asked for. */
function timelineFor(trace: Trace, { timeline }: AnalyzeOptions): string[] {
  const { isTTY, columns = LEAST_WIDTH } = process.stdout;
  const width = isTTY ? columns : DEFAULT_WIDTH;
  if (!(timeline ?? (isTTY && width >= LEAST_WIDTH))) return [];
  return timelinePicture(trace, Math.max(width, LEAST_WIDTH));
}

/** One line per broken rule, and per rule that cannot be judged. The exit code of an input wins over that of a broken rule. */
function judge(rows: readonly RankRow[]): void {
  const several = rows.length > 1;
  for (const row of rows) {
    const where = several ? `${row.file}, GPU ${row.gpu}: ` : '';
    for (const breach of row.breaches) {
      process.stderr.write(`weir: ${where}${formatBreach(breach)}\n`);
      process.exitCode ??= ExitCode.RuleBroken;
    }
    for (const rule of row.unjudged) {
      process.stderr.write(`weir: ${where}${formatUnjudged(rule)}\n`);
      process.exitCode = ExitCode.Input;
    }
  }
}
