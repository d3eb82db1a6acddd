// `weir run -- CMD`: a job on Weir's allocator, with nothing in it changed; `weir record -- CMD`: the same job watched.
import { Command, InvalidArgumentError, Option } from 'commander';
import { RUN_ALLOCATORS, type RunAllocator } from '../../abi/allocators.ts';
import { formatBytes } from '../../base/bytes.ts';
import { InputError, UsageError } from '../../base/errors.ts';
import { checkTransparency } from '../../run/check/transparency.ts';
import { type ChildEnd, endAs } from '../../run/child/child.ts';
import { RunError, RunExit } from '../../run/child/run-error.ts';
import { checkPattern, commandName } from '../../run/rings/trace-names.ts';
import { formatSummary, summaryJson, whyNothing } from '../../run/summary/summary.ts';
import { checkSummaryFile, type RunOptions, type RunOutcome, type RunVoice, supervise, writeSummary } from '../../run/supervise.ts';
import { preferTyped, takeEnvironment } from '../environment-options.ts';
import { ExitCode } from '../exit-code.ts';
import { asArgument, parsePositive } from '../options.ts';
import { paintFor } from '../paint.ts';
import { createVoice } from '../run-voice.ts';
import { servePage } from '../serve-run.ts';
import { readVersion } from '../version.ts';

interface Flags {
  readonly allocator: RunAllocator;
  readonly limit?: number;
  readonly record?: string;
  readonly force?: boolean;
  readonly whatIf: boolean;
  readonly whatIfEvents: number;
  readonly metrics?: number;
  readonly metricsHost: string;
  readonly serve?: boolean;
  readonly servePort: number;
  readonly check?: boolean;
  readonly checkLines?: RegExp;
  readonly checkOutput?: string;
  readonly lend: boolean;
  readonly plan?: boolean;
  readonly swap?: number | 'auto';
  readonly swapHost?: number;
  readonly allowUntested?: boolean;
  readonly ringRows: number;
  readonly json?: boolean;
  readonly jsonFile?: string;
  readonly quiet?: boolean;
  readonly verbose?: boolean;
}

const DEFAULT_RING_ROWS = 1 << 18;
/** Less than a process needs for anything. */
const LEAST_LIMIT = 32 * 1024 * 1024;
const DEFAULT_WHAT_IF_EVENTS = 20_000_000;

export function runCommand(): Command {
  return withSharedOptions(new Command('run'))
    .summary('run a job on the stitching allocator')
    .description(
      "Runs a command with its PyTorch processes on Weir's allocator: same script, same results, less memory. Its input, output, signals and exit code are its own. At the end, on stderr, what it took and what PyTorch's allocator would have needed.",
    )
    .addOption(new Option('--allocator <name>', 'the allocator to run on').choices(RUN_ALLOCATORS).default('weir'))
    .addOption(
      new Option('--limit <size>', 'act as a smaller GPU: memory each process may hold, like 40GiB').argParser(asArgument(parsePositive)),
    )
    .option('--check', "run the command on PyTorch's allocator, on ours and on PyTorch's again, and compare the losses it prints")
    .addOption(new Option('--check-lines <regex>', 'with --check, compare these lines instead of losses').argParser(asArgument(parseRegex)))
    .option('--check-output <file>', 'with --check, compare a file that the command writes')
    .option('--plan', 'watch the job for a few steps, then plan where every request of a step lies')
    .addOption(
      new Option(
        '--swap <size>',
        'move idle tensors to the host and back in time: down to this size, like 24GiB, or with auto as low as costs hardly any time',
      ).argParser(parseSwap),
    )
    .addOption(
      new Option('--swap-host <size>', 'host memory that swapping may take (half of what is there)').argParser(asArgument(parsePositive)),
    )
    .option('--no-lend', 'streams do not use memory that others have freed')
    .option('--allow-untested', 'run on versions of PyTorch that Weir was not tested with')
    .addHelpText(
      'before',
      `Examples:
  weir run -- python train.py
  weir run --limit 40GiB --record run.weir -- torchrun --nproc-per-node=8 train.py
  weir run --check -- python train.py            # the same losses as on PyTorch's allocator?
`,
    )
    .action((command: string[], _: unknown, self: Command) => start(command, self, undefined));
}

export function recordCommand(): Command {
  return withSharedOptions(new Command('record'))
    .summary("record a job under PyTorch's own allocator")
    .description(
      "Runs a command as it is, on PyTorch's allocator, and records every allocation of each of its processes from the first one on, for weir analyze, serve, replay and plan. Its input, output, signals and exit code are its own.",
    )
    .addOption(
      new Option('--allocator <name>', "PyTorch's allocator as it is set, or with expandable segments")
        .choices(['pytorch', 'expandable'])
        .default('pytorch'),
    )
    .addHelpText(
      'before',
      `Examples:
  weir record -- python train.py
  weir record -o runs/%q{SLURM_JOB_ID}.%r.weir -- torchrun --nproc-per-node=8 train.py
`,
    )
    .action((command: string[], _: unknown, self: Command) => start(command, self, commandName(command)));
}

function withSharedOptions(command: Command): Command {
  return command
    .passThroughOptions()
    .argument(
      '<command...>',
      'the command and its parameters: python, torchrun, accelerate launch, a shell script; -- before it is optional',
    )
    .option(
      '-o, --record <file>',
      'keep a recording of each process: FILE.<pid>.weir, or as %p (process), %h (host), %r (rank), %q{VARIABLE} say',
    )
    .option('-f, --force', 'write over recordings that are there')
    .option('--no-what-if', 'do not work out what other allocators would have needed')
    .addOption(
      new Option('--what-if-events <n>', 'events of each process that are replayed for it at most')
        .argParser(asArgument(parseCount))
        .default(DEFAULT_WHAT_IF_EVENTS),
    )
    .addOption(new Option('--metrics <port>', "serve live figures in Prometheus' format on this port").argParser(parsePort))
    .addOption(new Option('--metrics-host <address>', 'the address to serve them on').default('127.0.0.1'))
    .option('--serve', 'serve a page that shows the job live, on this machine only')
    .addOption(new Option('--serve-port <port>', 'its port instead of a free one').argParser(parsePort).default(0))
    .addOption(
      new Option('--ring-rows <n>', 'events that may wait to be recorded, in each process; a power of two')
        .argParser(asArgument(parseRows))
        .default(DEFAULT_RING_ROWS),
    )
    .option('--json', 'the summary as JSON (schema 1), the only thing on stderr from us')
    .option('--json-file <file>', 'the same into a file, beside the summary in words')
    .option('-q, --quiet', 'nothing on stderr but trouble, and the URL of --serve')
    .option('-v, --verbose', 'say more: every variable that is set, every file')
    .addHelpText(
      'after',
      `
Every option has a twin in the environment: --what-if-events is WEIR_WHAT_IF_EVENTS; the option wins.
Exit codes: the command's own; 125 Weir could not start it or a process refused to run on Weir, 126 it cannot be run,
127 there is no such command; 2 wrong usage; with --check, 1 if the results differ or nothing was compared.`,
    );
}

async function start(command: string[], self: Command, defaultName: string | undefined): Promise<void> {
  takeEnvironment(self);
  preferTyped(self, 'quiet', 'verbose');
  const flags = self.opts<Flags>();
  const record = flags.record ?? (defaultName === undefined ? undefined : `${defaultName}.weir`);
  checkFlags(flags, record);
  if (flags.jsonFile !== undefined) checkSummaryFile(flags.jsonFile);
  // A terminal that is gone is no reason to end before the command does.
  process.stderr.on('error', () => {});
  const voice = createVoice({ isQuiet: flags.quiet ?? false, isVerbose: flags.verbose ?? false, isSilent: flags.json ?? false });
  const options: RunOptions = {
    command,
    allocator: flags.allocator,
    limit: flags.limit,
    record,
    force: flags.force ?? false,
    whatIf: flags.whatIf && !flags.check,
    whatIfEvents: flags.whatIfEvents,
    metricsPort: flags.metrics,
    metricsHost: flags.metricsHost,
    lend: flags.lend ?? true,
    plan: flags.plan ?? false,
    swap: flags.swap,
    swapHost: flags.swapHost,
    allowUntested: flags.allowUntested ?? false,
    ringRows: flags.ringRows,
    quiet: flags.quiet ?? false,
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
  // Nothing was proved if the command never came to our allocator.
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
  if (summary.processes.length === 0 && summary.refusals.length === 0) voice.trouble(whyNothing(summary));
}

/** Ends as the command did, unless Weir is why it did. */
async function finish(end: ChildEnd, outcome: RunOutcome | undefined, voice: RunVoice): Promise<void> {
  const refusals = new Set(outcome?.refusals.map(({ message }) => message));
  for (const message of refusals) voice.trouble(message);
  if (refusals.size > 0) process.exitCode = RunExit.Own;
  else await endAs(end);
}

function checkFlags(flags: Flags, record: string | undefined): void {
  if (record !== undefined) checkPattern(record);
  if (flags.quiet && flags.verbose) throw new UsageError('--quiet and --verbose contradict each other');
  const onlyWithCheck = [
    ['--check-lines', flags.checkLines],
    ['--check-output', flags.checkOutput],
  ] as const;
  for (const [name, value] of onlyWithCheck)
    if (value !== undefined && !flags.check) throw new UsageError(`${name} says what --check compares; add --check`);
  if (flags.plan && flags.allocator !== 'weir')
    throw new UsageError(`--plan is followed by Weir's allocator; it does nothing with --allocator ${flags.allocator}`);
  if (typeof flags.swap === 'number' && flags.swap < LEAST_LIMIT)
    throw new UsageError('--swap takes a size that a job could fit in, like 24GiB, or auto');
  if (flags.swapHost !== undefined && flags.swap === undefined) throw new UsageError('--swap-host bounds what --swap takes; add --swap');
  if (flags.checkLines && flags.checkOutput) throw new UsageError('--check compares lines or a file; choose one');
  if (flags.check && flags.serve) throw new UsageError('--check runs the command three times; it cannot be shown with --serve');
  if (flags.json && flags.serve) throw new UsageError('--json hides the URL that --serve prints; choose one');
  if (flags.limit !== undefined && flags.limit < LEAST_LIMIT)
    throw new UsageError(`--limit ${formatBytes(flags.limit)} is less than a process needs at all; write it like 40GiB`);
}

/** What fails before the command starts is our failure, not that of a file that was given. */
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

function parseCount(text: string): number {
  const value = Number(text.replaceAll('_', ''));
  if (!Number.isSafeInteger(value) || value <= 0) throw new UsageError(`'${text}' is not a number of events`);
  return value;
}

function parseRows(text: string): number {
  const rows = parseCount(text);
  if (rows < 1024 || rows > 1 << 24 || (rows & (rows - 1)) !== 0)
    throw new UsageError(`'${text}' is not a power of two from 1024 to ${1 << 24}`);
  return rows;
}

function parseSwap(text: string): number | 'auto' {
  if (text === 'auto') return text;
  try {
    return parsePositive(text);
  } catch {
    throw new InvalidArgumentError(`'${text}' is neither a size like 24GiB nor auto`);
  }
}

function parsePort(text: string): number {
  const port = Number(text);
  if (text.trim() === '' || !Number.isInteger(port) || port < 0 || port > 65535)
    throw new InvalidArgumentError('a port is a number from 0 to 65535.');
  return port;
}
