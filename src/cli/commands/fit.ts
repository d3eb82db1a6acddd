// `weir fit`: the largest value of a parameter, such as the batch, that fits on a GPU, from recordings or from a command.
import { existsSync } from 'node:fs';
import { dirname } from 'node:path';
import { Command } from 'commander';
import { type AllocatorChoice, chooseAllocators } from '../../allocator/registry.ts';
import { UsageError } from '../../base/errors.ts';
import { predictDraws } from '../../fit/draws.ts';
import { type FitModel, learnFit } from '../../fit/model.ts';
import type { Point } from '../../fit/monomials.ts';
import {
  type FitPrediction,
  type FitRuns,
  type FrontierRow,
  type PredictOptions,
  predictFrontier,
  predictOn,
  replaysOf,
} from '../../fit/prediction.ts';
import type { Line } from '../../fit/search.ts';
import type { FitRun } from '../../fit/sequence.ts';
import { fitJson } from '../../report/fit-json.ts';
import { type Draws, formatFit } from '../../report/terminal/fit.ts';
import { shellWord } from '../../report/words/shell.ts';
import { endAs, holdJob } from '../../run/child/child.ts';
import { endingSignals } from '../../run/child/hang-up.ts';
import { RunError } from '../../run/child/run-error.ts';
import { createScratchFolder, removeFolder } from '../../run/child/run-folder.ts';
import { onSignals } from '../../run/child/signals.ts';
import type { Trace } from '../../trace/trace.ts';
import { writeWeir } from '../../trace/weir/writer.ts';
import { ExitCode } from '../exit-code.ts';
import { type FitFlags, readLengths, traceOf, withFitOptions } from '../fit-options.ts';
import { confirm, contradictions, isRight, Trials } from '../fit-trying.ts';
import { loadRecording } from '../input.ts';
import { ALLOCATOR_HELP } from '../options.ts';
import { writeWhole } from '../output.ts';
import { PageServer } from '../page-server.ts';
import { paintFor } from '../paint.ts';
import { createProgress, type Progress } from '../progress.ts';
import { createVoice } from '../run-voice.ts';
import { serveUntilInterrupted } from '../serving.ts';
import { writeRuns } from '../value-runs.ts';
import { ViewSource } from '../view-source.ts';

const DEFAULT_ALLOCATORS = 'pytorch,expandable,weir';
/** Without --table, the other parameter is shown at the recorded values and at these multiples of the largest. */
const TABLE_MULTIPLES: readonly number[] = [2, 4];

/** Steps of an epoch that are replayed: its longest step and those before it. */
const DRAWN_STEPS = 8;
/** Up to this batch, every batch is looked at. */
const FINE_BATCH = 24;

export function fitCommand(): Command {
  return (
    withFitOptions(new Command('fit'))
      .summary('the largest batch or length that fits')
      .description(
        'Says which value of a parameter is the largest that fits on a GPU, for each allocator, before anyone has tried it. Learns the size of every block from recordings of a few small values, makes the run of a larger one, and replays it.',
      )
      // Options of a command without -- before it: said in a sentence below.
      .allowUnknownOption()
      .argument('<what...>', 'recordings of one program, with --values; or -- and a command with {} where the value goes')
      .addHelpText(
        'before',
        `Examples:
  weir fit -- python train.py --batch-size {}
  weir fit --try 4,6,8 --gpu 24GiB --confirm -- torchrun --nproc-per-node=8 train.py --batch-size {}
  weir fit --try 4x512,8x512,4x1024,8x1024 -- python train.py --batch {batch} --length {length}
  weir fit batch4.weir batch8.weir --values 4,8 --gpu 80GiB
  weir fit batch4.weir batch8.weir --values 4,8 --gpu 80GiB --serve
  weir fit a.pickle b.pickle c.pickle --values 256,512,768 --gpu 24GiB --at 1024,2048
  weir fit 4-512.weir 8-512.weir 4-1k.weir 8-1k.weir --values 4x512,8x512,4x1024,8x1024 --names batch,length --gpu 80GiB
`,
      )
      .addHelpText(
        'after',
        `${ALLOCATOR_HELP}
A command runs for --steps optimizer steps with each value, then it is ended. Its output is not shown, and its input is empty. Nothing is saved.
Exit codes: 0 done, 1 --confirm found the answer wrong, 2 wrong usage, 3 unusable file, 125 a run failed.`,
      )
      .action(fit)
  );
}

async function fit(given: string[], flags: FitFlags): Promise<void> {
  const option = given.find((word) => /^-./.test(word));
  if (option !== undefined && !process.argv.includes('--'))
    throw new UsageError(
      flags.values
        ? `there is no option ${option}; see weir fit --help`
        : `there is no option ${option}; if it belongs to a command, put -- before that: weir fit -- python train.py --batch-size {}`,
    );
  // No program is called so, and what comes before -- is Weir's.
  if (option !== undefined && option === given[0]) throw new UsageError(`there is no option ${given[0]}; see weir fit --help`);
  if (flags.values && given.some((word) => /\{\w*\}/.test(word)))
    throw new UsageError('--values is for recordings; a command has --try, like --try 4,8');
  if (flags.serve && flags.json)
    throw new UsageError('--serve prints the address of the page, and --json nothing but JSON; use one of them');
  if (flags.open && !flags.serve) throw new UsageError('--open opens the page; add --serve');
  if (flags.values !== undefined) await fitRecordings(given, flags, flags.values);
  else if (given.every((name) => RECORDING_NAME.test(name))) throw new UsageError('give the value of each recording, like --values 4,8');
  else await fitCommandLine(given, flags);
}

/** The page about runs of other values, until the user interrupts. */
async function serveValues(runs: readonly FitRun[], { prediction }: FitAnswer, flags: FitFlags): Promise<void> {
  const { names, gpuBytes, line } = prediction;
  const allocators = choicesOf(flags)
    .map(({ name }) => name)
    .join(',');
  const folder = createScratchFolder();
  try {
    // The threads of the page read the runs from files, whichever way they were made.
    const task = { runs: writeRuns(folder, runs), names, gpuBytes, multiple: line.multiple, allocators };
    const source = new ViewSource('run', undefined, task);
    const server = new PageServer({ sources: [source] });
    source.prepare();
    await serveUntilInterrupted(server, { port: flags.servePort, open: flags.open, quiet: flags.quiet });
    server.close();
    source.close();
  } finally {
    removeFolder(folder);
  }
}

/** What nobody runs as a command. */
const RECORDING_NAME = /\.(weir|pickle|pkl|json)(\.gz|\.zst)?$/;

async function fitRecordings(files: readonly string[], flags: FitFlags, values: readonly Point[]): Promise<void> {
  const [commandOnly] = (['try', 'confirm', 'whole', 'keep'] as const).filter((name) => flags[name] !== undefined);
  if (commandOnly) throw new UsageError(`--${commandOnly} is for a command; recordings have --values`);
  const progress = createProgress(flags.quiet ?? false);
  const runs = await loadRuns(files, values, flags.device, progress);
  const gpuBytes = flags.gpu ?? runs[0]!.trace.limits.deviceBytes;
  if (gpuBytes === undefined) throw new UsageError('the recordings do not say how much memory their GPU has; add --gpu SIZE');
  const answer = answerFrom(runs, gpuBytes, flags.names, flags, progress);
  progress.clear();
  print(answer, flags);
  if (flags.serve) await serveValues(runs, answer, flags);
}

async function fitCommandLine(command: readonly string[], flags: FitFlags): Promise<void> {
  if (flags.names) throw new UsageError('--names is for recordings; a command names its parameters, like {batch}');
  if (process.platform !== 'linux')
    throw new RunError('weir fit runs commands on Linux only; recordings can be used here: weir fit FILES --values 4,8');
  const voice = createVoice({ isQuiet: flags.quiet ?? false, isVerbose: false, isSilent: false });
  let interrupted: NodeJS.Signals | undefined;
  const stopListening = onSignals(endingSignals(process.env), (signal) => {
    interrupted ??= signal;
  });
  const release = holdJob();
  const isInterrupted = () => interrupted !== undefined;
  let trials: Trials | undefined;
  let shown: { runs: readonly FitRun[]; answer: FitAnswer } | undefined;
  try {
    trials = new Trials(command, flags, voice, isInterrupted);
    // A pipe can be read once.
    const lengths = checkQuestions(flags, trials.names.length);
    const tried = await trials.all();
    if (tried) {
      const progress = createProgress(flags.quiet ?? false);
      const found = answerFrom(tried.runs, tried.gpuBytes, tried.names, flags, progress, lengths);
      const answer = { ...found, warnings: contradictions(tried, found.runs) };
      progress.clear();
      const confirmations = flags.confirm ? await confirm(trials, answer.prediction, flags.gpu, voice, isInterrupted) : undefined;
      if (!isInterrupted()) print(answer, flags, confirmations ? { confirmations } : {});
      shown = { runs: tried.runs, answer };
      if (confirmations?.some((confirmation) => !isRight(confirmation))) process.exitCode = ExitCode.RuleBroken;
    }
  } finally {
    trials?.close();
    release();
    stopListening();
  }
  if (interrupted !== undefined) await endAs({ code: null, signal: interrupted });
  else if (flags.serve && shown) await serveValues(shown.runs, shown.answer, flags);
}

export interface FitAnswer {
  readonly runs: FitRuns;
  readonly prediction: FitPrediction;
  readonly frontier: readonly FrontierRow[];
  readonly draws: Draws | undefined;
  readonly warnings?: readonly string[] | undefined;
}

export function answerFrom(
  given: readonly FitRun[],
  gpuBytes: number,
  names: readonly string[] | undefined,
  flags: FitFlags,
  progress: Progress,
  known?: readonly number[],
): FitAnswer {
  progress.update(0, 'comparing the runs');
  const model = learnFit(given);
  const parameters = model.template.values.length;
  if (names !== undefined && names.length !== parameters)
    throw new UsageError(`--names has ${names.length} names, but each run has ${parameters === 1 ? 'one value' : `${parameters} values`}`);
  progress.update(0, 'making the run of other values');
  const runs = replaysOf(model);
  const line: Line = { point: model.template.values, parameter: 0, multiple: flags.multiple };
  const options = {
    gpuBytes,
    choices: choicesOf(flags),
    names,
    line,
    asked: flags.at,
    onProgress: (fraction: number, doing: string) => progress.update(fraction, doing),
  };
  const lengths = known ?? checkQuestions(flags, parameters);
  const prediction = predictOn(runs, options);
  const frontier = parameters === 2 ? predictFrontier(runs, { ...options, others: flags.table ?? usualTable(model.points) }) : [];
  const draws = lengths && drawFrom(model, flags.lengths!, lengths, options);
  return { runs, prediction, frontier, draws };
}

function choicesOf({ allocator }: FitFlags): readonly AllocatorChoice[] {
  return allocator ?? chooseAllocators(DEFAULT_ALLOCATORS);
}

/** Around the batch that fits on every allocator with the longest sample in each step. */
function drawFrom(model: FitModel, source: string, lengths: readonly number[], options: PredictOptions & { readonly line: Line }): Draws {
  const runs = replaysOf(model, DRAWN_STEPS);
  const [longest] = predictFrontier(runs, { ...options, others: [lengths.reduce((most, length) => Math.max(most, length))] });
  const batch = Math.max(1, Math.min(...longest!.largest.map(({ sure }) => sure.value)));
  const stride = Math.max(options.line.multiple, Math.ceil(batch / FINE_BATCH));
  const { gpuBytes, choices, onProgress } = options;
  return { source, samples: lengths.length, rows: predictDraws(runs, { gpuBytes, choices, lengths, batch, stride, onProgress }) };
}

/** What is asked, before anything is run for it. Returns the lengths to draw from. */
function checkQuestions({ at, table, lengths, write, force }: FitFlags, parameters: number): number[] | undefined {
  const wrong = at?.find((point) => point.length !== parameters);
  if (wrong)
    throw new UsageError(`--at ${wrong.join('x')} needs ${parameters === 1 ? 'one value' : `${parameters} values with x between them`}`);
  if (table && parameters !== 2) throw new UsageError('--table is for two parameters, such as batch and length');
  if (write !== undefined) checkWritable(write, force ?? false);
  if (lengths === undefined) return undefined;
  if (parameters !== 2) throw new UsageError('--lengths needs two parameters, batch and length in this order');
  return readLengths(lengths);
}

function checkWritable(path: string, force: boolean): void {
  if (!force && existsSync(path)) throw new UsageError(`${path} exists; -f overwrites it`);
  if (!existsSync(dirname(path))) throw new UsageError(`--write ${path}: there is no folder ${dirname(path)}`);
}

function usualTable(points: readonly Point[]): number[] {
  const seen = [...new Set(points.map((point) => point[1]!))].sort((a, b) => a - b);
  return [...seen, ...TABLE_MULTIPLES.map((factor) => factor * seen.at(-1)!)];
}

export function print({ runs, prediction, ...sections }: FitAnswer, flags: FitFlags, more: Record<string, unknown> = {}): void {
  const { model } = runs;
  if (flags.json) process.stdout.write(`${JSON.stringify({ ...fitJson(model, prediction, sections), ...more })}\n`);
  else process.stdout.write(formatFit(model, prediction, sections, paintFor(process.stdout)));
  if (flags.write !== undefined) writeRun(flags.write, runs.synthesis.at(prediction.growthPoint, 'upper'));
}

function writeRun(path: string, trace: Trace): void {
  const chunks: Uint8Array[] = [];
  writeWeir({ format: 'weir', traces: [trace] }, (chunk) => chunks.push(chunk.slice()), { synthesised: true });
  writeWhole(path, Buffer.concat(chunks));
  process.stderr.write(`wrote ${path}; to see it: weir serve ${shellWord(path)}\n`);
}

async function loadRuns(
  files: readonly string[],
  values: readonly Point[],
  device: number | undefined,
  progress: Progress,
): Promise<FitRun[]> {
  if (files.length !== values.length)
    throw new UsageError(
      `there are ${files.length} recordings and ${values.length} values; give each recording its value, like weir fit a.weir b.weir --values 4,8`,
    );
  const runs: FitRun[] = [];
  for (const [index, file] of files.entries()) {
    const recording = await loadRecording(file, progress);
    runs.push({ trace: traceOf(recording, device, file), values: values[index]! });
  }
  return runs;
}
