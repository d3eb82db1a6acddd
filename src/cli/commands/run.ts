// `weir run -- CMD`: an unchanged job on Weir's allocator. `weir record -- CMD`: the job on PyTorch's allocator, recorded.
import { Command, Option } from 'commander';
import { ENGINE_ALLOCATORS } from '../../abi/allocators.ts';
import { LEAST_LIMIT } from '../../abi/environment.ts';
import { LEAST_RING_ROWS, MOST_RING_ROWS, RING_ROWS } from '../../abi/ring.ts';
import { formatBytes } from '../../base/bytes.ts';
import { InputError, UsageError } from '../../base/errors.ts';
import { minorOf, trustAdvice, trustSentence } from '../../report/words/pytorch-trust.ts';
import { checkTransparency } from '../../run/check/transparency.ts';
import { type ChildEnd, endAs } from '../../run/child/child.ts';
import { pythonWithoutTorch } from '../../run/child/missing-torch.ts';
import { RunError, RunExit } from '../../run/child/run-error.ts';
import { checkPattern, commandName } from '../../run/rings/trace-names.ts';
import { summaryJson } from '../../run/summary/summary-json.ts';
import { emptyReason, formatSummary } from '../../run/summary/summary-text.ts';
import { type RunOptions, type RunOutcome, supervise } from '../../run/supervise.ts';
import { checkSummaryFile, type RunVoice, writeSummary } from '../../run/supervision.ts';
import { preferTyped, takeEnvironment } from '../environment-options.ts';
import { ExitCode } from '../exit-code.ts';
import { asArgument, parsePositive } from '../options.ts';
import { paintFor } from '../paint.ts';
import {
  limitOption,
  parseCount,
  planOption,
  runAllocatorOption,
  type StacksFlag,
  type SupervisionFlags,
  stacksOption,
  swapOption,
  withSupervisionOptions,
  withSwallowedPython,
} from '../run-options.ts';
import { createVoice } from '../run-voice.ts';
import { servePage } from '../serve-run.ts';
import { readVersion } from '../version.ts';

interface Flags extends SupervisionFlags {
  readonly check?: boolean;
  readonly checkLines?: RegExp;
  readonly checkOutput?: string;
  readonly lend: boolean;
  readonly swapHost?: number;
  readonly allowUntested?: boolean;
  readonly ringRows: number;
  readonly accesses?: number;
  readonly stacks: StacksFlag;
  readonly json?: boolean;
}

export function runCommand(): Command {
  return withSharedOptions(new Command('run'))
    .summary("run a job on Weir's allocator")
    .description(
      "Runs a command with its PyTorch processes on Weir's allocator: same script, same results, less memory. Input, output, signals and exit code stay those of the command. At the end, stderr shows the memory it took and what PyTorch's allocator would have needed.",
    )
    .addOption(runAllocatorOption())
    .addOption(limitOption())
    .option('--check', "run the command on PyTorch's allocator, on Weir's, and on PyTorch's again; compare the losses it prints")
    .addOption(new Option('--check-lines <regex>', 'with --check: compare these lines instead of losses').argParser(asArgument(parseRegex)))
    .option('--check-output <file>', 'with --check: compare a file that the command writes')
    .addOption(planOption())
    .addOption(swapOption())
    .addOption(
      new Option(
        '--swap-host <size>',
        'host memory for swapping, of all processes on this machine together (default: half of what is available)',
      ).argParser(asArgument(parsePositive)),
    )
    .addOption(stacksOption('large'))
    .option('--no-lend', 'do not lend freed memory between streams')
    .option('--allow-untested', 'allow versions of PyTorch that Weir was not tested with')
    .addHelpText(
      'before',
      `Examples:
  weir run -- python train.py
  weir run --limit 40GiB --record run.weir -- torchrun --nproc-per-node=8 train.py
  weir run --check -- python train.py            # the same losses as on PyTorch's allocator?
`,
    )
    .action((command: string[], _: unknown, self: Command) => start(command, self, false));
}

export function recordCommand(): Command {
  return withSharedOptions(new Command('record'))
    .summary("record a job on PyTorch's allocator")
    .description(
      "Runs a command on PyTorch's allocator and records every allocation of each process, for weir analyze, serve, replay and plan. Input, output, signals and exit code stay those of the command.",
    )
    .addOption(
      new Option('--allocator <name>', "PyTorch's allocator with the job's settings, or with expandable segments")
        .choices(['pytorch', 'expandable'])
        .default('pytorch'),
    )
    .addOption(
      new Option(
        '--accesses [steps]',
        'also record every operator of so many steps, with the memory that it reads and writes, for weir plan --swap; it slows these steps down',
      )
        .preset(DEFAULT_ACCESSES)
        .argParser(asArgument(parseSteps)),
    )
    .addOption(stacksOption('python'))
    .addHelpText(
      'before',
      `Examples:
  weir record -- python train.py
  weir record --accesses=3 -- python train.py      # for weir plan --swap
  weir record -o runs/%q{SLURM_JOB_ID}.%r.weir -- torchrun --nproc-per-node=8 train.py
`,
    )
    .action((command: string[], _: unknown, self: Command) => start(command, self, true));
}

function withSharedOptions(command: Command): Command {
  return withSupervisionOptions(
    command
      .passThroughOptions()
      .argument(
        '<command...>',
        'the command and its arguments: python, torchrun, accelerate launch, a shell script; the -- before it is optional',
      ),
  )
    .addOption(
      new Option('--ring-rows <n>', 'size of the event buffer of each process, in events; a power of two')
        .argParser(asArgument(parseRows))
        .default(RING_ROWS),
    )
    .option('--json', 'print the summary as JSON (schema 1), and nothing else, on stderr')
    .addHelpText(
      'after',
      `
Every option can be set in the environment: --what-if-events as WEIR_WHAT_IF_EVENTS. The option wins.
If there is no command to wrap (a notebook, Ray): weir_gpu.enable() in Python, or WEIR=1; see docs/without-a-wrapper.md.
Exit codes: the command's own, or
  1    with --check: the results differ, or nothing could be compared
  2    wrong usage
  125  Weir could not start the command, or a process refused to run on Weir
  126  the command cannot be run
  127  the command does not exist`,
    );
}

async function start(words: readonly string[], self: Command, namesRecording: boolean): Promise<void> {
  if (process.platform !== 'linux')
    throw new RunError(
      `weir ${self.name()} needs Linux: run the job on the machine with the GPU. Recordings can be analyzed here: weir analyze FILE`,
    );
  takeEnvironment(self);
  preferTyped(self, 'quiet', 'verbose');
  const flags = self.opts<Flags>();
  const command = withSwallowedPython(words, process.argv);
  const record = flags.record ?? (namesRecording ? `${commandName(command)}.weir` : undefined);
  checkFlags(flags, record);
  if (flags.jsonFile !== undefined) checkSummaryFile(flags.jsonFile);
  // The command goes on if its terminal is gone, so Weir must too.
  process.stderr.on('error', () => {});
  const voice = createVoice({ isQuiet: flags.quiet ?? false, isVerbose: flags.verbose ?? false, isSilent: flags.json ?? false });
  const options: RunOptions = {
    command,
    allocator: flags.allocator,
    limit: flags.limit,
    record,
    force: flags.force ?? false,
    oomDir: flags.oomDir,
    whatIf: flags.whatIf && !flags.check && (!flags.quiet || flags.json === true || flags.jsonFile !== undefined),
    whatIfEvents: flags.whatIfEvents,
    metricsPort: flags.metrics,
    metricsHost: flags.metricsHost,
    lend: flags.lend ?? true,
    plan: flags.plan ?? false,
    swap: flags.swap,
    swapHost: flags.swapHost,
    allowUntested: flags.allowUntested ?? false,
    ringRows: flags.ringRows,
    accesses: flags.accesses,
    stacks: flags.stacks === 'off' ? undefined : flags.stacks,
    quiet: flags.quiet || flags.json || false,
    version: readVersion(),
    environment: process.env,
  };
  try {
    if (flags.check) await check(options, flags, voice);
    else await run(options, flags, voice);
  } catch (error) {
    throw asRunError(error);
  }
}

async function run(options: RunOptions, flags: Flags, voice: RunVoice): Promise<void> {
  const page = flags.serve ? servePage(flags.servePort, voice) : undefined;
  const outcome = await supervise(options, voice, page);
  conclude(outcome, flags, voice, {});
  await page?.farewell();
  await finish(outcome.end, outcome, voice);
}

async function check(options: RunOptions, flags: Flags, voice: RunVoice): Promise<void> {
  const { command, allocator, environment } = options;
  const result = await checkTransparency(
    { command, environment, allocator, lines: flags.checkLines, output: flags.checkOutput },
    (onOutput) => supervise({ ...options, onOutput }, voice),
    voice,
  );
  if (result.kind === 'failed') {
    if (result.outcome) conclude(result.outcome, flags, voice, {});
    await finish(result.end, result.outcome, voice);
    return;
  }
  // Equal results prove nothing if no process ran on our allocator.
  const hasRun = result.outcome.summary.processes.length > 0;
  const isSame = result.isSame && hasRun;
  conclude(result.outcome, flags, voice, { check: { ...result.json, isSame } });
  voice.say(`check: ${hasRun ? result.sentence : `nothing was proved: no process of the command ran on ${allocator}`}`);
  process.exitCode = isSame ? ExitCode.Ok : ExitCode.RuleBroken;
}

/** The summary, for people and for programs. */
function conclude({ summary }: RunOutcome, flags: Flags, voice: RunVoice, more: Record<string, unknown>): void {
  const json = { ...summaryJson(summary), ...more };
  if (flags.jsonFile !== undefined) writeSummary(flags.jsonFile, json, voice);
  if (flags.json) {
    process.stderr.write(`${JSON.stringify(json)}\n`);
    return;
  }
  for (const line of formatSummary(summary, paintFor(process.stderr))) voice.say(line);
  if (!flags.check) for (const line of trustLines(summary)) voice.say(line);
  if (summary.processes.length > 0 || summary.refusals.length > 0) return;
  const python = summary.idleProcesses === 0 ? pythonWithoutTorch(summary.command, process.env) : undefined;
  voice.trouble(emptyReason(summary, python));
}

/** One line for each version of PyTorch with which Weir was not run on a GPU. On PyTorch's own allocator there is nothing to compare. */
function trustLines({ allocator, processes }: RunOutcome['summary']): string[] {
  if (!ENGINE_ALLOCATORS.some((engine) => engine === allocator)) return [];
  const versions = [...new Set(processes.map(({ owner }) => minorOf(owner.torchVersion)))];
  return versions.flatMap((version) => {
    const advice = trustAdvice(version);
    return advice === undefined ? [] : [`${trustSentence(version)} ${advice}`];
  });
}

/** Exits as the command did, unless Weir made it fail. */
async function finish(end: ChildEnd, outcome: RunOutcome | undefined, voice: RunVoice): Promise<void> {
  const refusals = new Set(outcome?.refusals.map(({ message }) => message));
  for (const message of refusals) voice.trouble(message);
  if (refusals.size > 0) process.exitCode = RunExit.Own;
  else await endAs(end);
}

function checkFlags(flags: Flags, record: string | undefined): void {
  if (record !== undefined) checkPattern(record);
  if (flags.quiet && flags.verbose) throw new UsageError('--quiet and --verbose contradict each other; choose one');
  const onlyWithCheck = [
    ['--check-lines', flags.checkLines],
    ['--check-output', flags.checkOutput],
  ] as const;
  for (const [name, value] of onlyWithCheck)
    if (value !== undefined && !flags.check) throw new UsageError(`${name} chooses what --check compares; add --check`);
  if (flags.plan && flags.allocator !== 'weir')
    throw new UsageError(`--plan works only with --allocator weir, not with ${flags.allocator}`);
  if (typeof flags.swap === 'number' && flags.swap < LEAST_LIMIT)
    throw new UsageError('--swap is too small for any job; write a size like 24GiB, or auto');
  if (flags.swapHost !== undefined && flags.swap === undefined)
    throw new UsageError('--swap-host limits the host memory of --swap; add --swap');
  if (flags.checkLines && flags.checkOutput) throw new UsageError('--check-lines and --check-output contradict each other; choose one');
  if (flags.check && flags.serve) throw new UsageError('--check runs the command three times, which --serve cannot show; choose one');
  if (flags.json && flags.serve) throw new UsageError('--json hides the URL that --serve prints; choose one');
  if (flags.limit !== undefined && flags.limit < LEAST_LIMIT)
    throw new UsageError(`--limit ${formatBytes(flags.limit)} is too small for any process; write it like 40GiB`);
}

/** A failure before the command starts is Weir's own: exit code 125. */
function asRunError(error: unknown): unknown {
  const isOurs = error instanceof InputError || (error instanceof Error && 'syscall' in error);
  return isOurs ? new RunError(error.message) : error;
}

function parseRegex(text: string): RegExp {
  try {
    return new RegExp(text);
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

/** Steps whose operators are recorded, unless a number is given. */
const DEFAULT_ACCESSES = '3';
const MOST_ACCESSES = 1000;

function parseSteps(text: string): number {
  const steps = /^\d+$/.test(text) ? Number(text) : 0;
  if (steps < 1 || steps > MOST_ACCESSES)
    throw new UsageError(`'${text}' is not a number of steps from 1 to ${MOST_ACCESSES}; write --accesses=3, or --accesses -- COMMAND`);
  return steps;
}

function parseRows(text: string): number {
  const rows = parseCount(text);
  if (rows < LEAST_RING_ROWS || rows > MOST_RING_ROWS || (rows & (rows - 1)) !== 0)
    throw new UsageError(`'${text}' is not a power of two from ${LEAST_RING_ROWS} to ${MOST_RING_ROWS}`);
  return rows;
}
