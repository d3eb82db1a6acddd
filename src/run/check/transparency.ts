// `weir run --check`: runs the command three times, on PyTorch's allocator, on ours and on PyTorch's again.
// The results on ours must differ no more than the two results on PyTorch's allocator.
import { finished } from 'node:stream/promises';
import { type ChildEnd, holdJob, runChild } from '../child/child.ts';
import { withoutWeir } from '../child/environment.ts';
import { endingSignals } from '../child/hang-up.ts';
import type { RunningCommand } from '../child/posix-process.ts';
import { onSignals } from '../child/signals.ts';
import type { RunOutcome } from '../supervise.ts';
import type { RunVoice } from '../supervision.ts';
import { CheckedFile, type Contents } from './checked-file.ts';
import { distance, type FoundNumbers, NumberReader } from './number-comparison.ts';

export interface CheckOptions {
  readonly command: readonly string[];
  readonly environment: NodeJS.ProcessEnv;
  readonly allocator: string;
  /** Lines to compare. Default: losses. */
  readonly lines: RegExp | undefined;
  /** A file that the command writes, to compare instead of its output. */
  readonly output: string | undefined;
}

/** Runs the command on our allocator. Its output is shown and also goes to the listener. */
export type RunOnOurs = (onOutput: (child: RunningCommand) => void) => Promise<RunOutcome>;

export type CheckResult =
  /** A run failed, so there is nothing to compare. */
  | { readonly kind: 'failed'; readonly end: ChildEnd; readonly outcome: RunOutcome | undefined }
  | {
      readonly kind: 'compared';
      readonly isSame: boolean;
      readonly sentence: string;
      readonly json: Record<string, unknown>;
      readonly outcome: RunOutcome;
    };

/** Bytes of stderr that are shown if a silent run fails. */
const MOST_ERRORS = 64 * 1024;
/** Longest wait for the last output after the command has ended. */
const DRAIN_MS = 2000;

export async function checkTransparency(options: CheckOptions, runOnOurs: RunOnOurs, voice: RunVoice): Promise<CheckResult> {
  const output = options.output === undefined ? undefined : new CheckedFile(options.output);
  const release = holdJob();
  let interrupted: NodeJS.Signals | undefined;
  const stopListening = onSignals(endingSignals(options.environment), (signal) => {
    interrupted ??= signal;
  });
  const hasEnded = (end: ChildEnd): ChildEnd | undefined => {
    if (hasFailed(end)) return end;
    return interrupted === undefined ? undefined : { code: null, signal: interrupted };
  };
  try {
    voice.say("checking, 1 of 3: PyTorch's allocator (its output is not shown)");
    const first = await runSilently(options, voice);
    const firstEnd = hasEnded(first.end);
    if (firstEnd) return failed('PyTorch', firstEnd, voice);
    const firstSaid = output?.take() ?? first.said;
    voice.say(`checking, 2 of 3: ${options.allocator}`);
    const ours = await runOnOursReading(options, runOnOurs);
    const oursEnd = hasEnded(ours.outcome.end);
    if (oursEnd || ours.outcome.refusals.length > 0) {
      // The run on our allocator failed, so its file is left as the command left it.
      output?.keep();
      return { kind: 'failed', end: oursEnd ?? ours.outcome.end, outcome: ours.outcome };
    }
    const oursSaid = output?.take() ?? ours.said;
    output?.keepTaken();
    voice.say("checking, 3 of 3: PyTorch's allocator again");
    const second = await runSilently(options, voice);
    const secondEnd = hasEnded(second.end);
    if (secondEnd) return failed('PyTorch', secondEnd, voice);
    const secondSaid = output?.take() ?? second.said;
    return { kind: 'compared', outcome: ours.outcome, ...judge(options, firstSaid, oursSaid, secondSaid) };
  } finally {
    output?.close(voice);
    stopListening();
    release();
  }
}

function judge(
  options: CheckOptions,
  first: Contents,
  ours: Contents,
  second: Contents,
): { isSame: boolean; sentence: string; json: Record<string, unknown> } {
  const apart = Math.min(contentDistance(first, ours), contentDistance(second, ours));
  const noise = contentDistance(first, second);
  const what = options.output ?? (options.lines ? 'lines that match' : 'losses');
  const json = { compared: ours.values.length, difference: finite(apart), ownDifference: finite(noise), what };
  if (ours.isMissing || first.isMissing || second.isMissing)
    return {
      isSame: false,
      sentence: `nothing was compared: the command did not write ${options.output}`,
      json: { ...json, isSame: false },
    };
  if (options.output === undefined && ours.values.length === 0 && first.values.length === 0) {
    const hint = options.lines
      ? 'no line of the output matches --check-lines and has a number'
      : 'no line of the output has a number after a word with "loss" in it; choose lines with --check-lines REGEX, or a file with --check-output FILE';
    return { isSame: false, sentence: `nothing was compared: ${hint}`, json: { ...json, isSame: false } };
  }
  const isSame = apart <= noise;
  return { isSame, sentence: sentenceFor(options, apart, noise, ours, first), json: { ...json, isSame } };
}

function sentenceFor(options: CheckOptions, apart: number, noise: number, ours: Contents, first: Contents): string {
  const count = ours.values.length;
  const numbers = `${count.toLocaleString('en-US')} ${count === 1 ? 'number' : 'numbers'}`;
  const compared = options.output === undefined ? numbers : options.output;
  const name = options.allocator;
  if (apart === 0) return `identical: ${compared} on ${name} and on PyTorch's allocator`;
  const itself = `two runs on PyTorch's allocator ${noise === 0 ? 'are identical' : `differ ${amount(noise)}`}`;
  if (apart === Number.POSITIVE_INFINITY && count !== first.values.length)
    return `different: ${name} gave ${numbers}, PyTorch's allocator ${first.values.length.toLocaleString('en-US')}; ${itself}`;
  return `${compared}: ${name} differs ${amount(apart)}; ${itself}`;
}

function amount(share: number): string {
  return share === Number.POSITIVE_INFINITY ? 'in more than numbers' : `by up to ${share.toPrecision(2)} (relative)`;
}

function contentDistance(one: Contents, other: Contents): number {
  if (one.bytes && other.bytes && Buffer.compare(one.bytes, other.bytes) === 0) return 0;
  const isText = one.bytes === undefined || (one.textBetween !== undefined && other.textBetween !== undefined);
  return isText ? distance(one, other) : Number.POSITIVE_INFINITY;
}

function finite(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}

async function runSilently(options: CheckOptions, voice: RunVoice): Promise<{ end: ChildEnd; said: FoundNumbers }> {
  const reader = new NumberReader(options.lines);
  let errors = Buffer.alloc(0);
  let ended: Promise<void> = Promise.resolve();
  const end = await runChild({
    command: options.command,
    environment: withoutWeir(options.environment),
    stdio: ['ignore', 'pipe', 'pipe'],
    onTrouble: (sentence) => voice.trouble(sentence),
    onStart(child) {
      child.stdout!.on('data', (chunk: Buffer) => reader.push(chunk));
      child.stderr!.on('data', (chunk: Buffer) => {
        errors = Buffer.concat([errors, chunk]).subarray(-MOST_ERRORS);
      });
      ended = drained(child);
    },
  });
  await ended;
  if (hasFailed(end)) process.stderr.write(errors);
  return { end, said: reader.finish() };
}

async function runOnOursReading(options: CheckOptions, runOnOurs: RunOnOurs): Promise<{ outcome: RunOutcome; said: FoundNumbers }> {
  const reader = new NumberReader(options.lines);
  let ended: Promise<void> = Promise.resolve();
  const outcome = await runOnOurs((child) => {
    child.stdout!.on('data', (chunk: Buffer) => reader.push(chunk));
    child.stdout!.pipe(process.stdout, { end: false });
    // The reader of our output is gone. Closing the pipe tells the command, as without us.
    process.stdout.once('error', () => {
      child.stdout!.unpipe(process.stdout);
      child.stdout!.destroy();
    });
    ended = drained(child);
  });
  await ended;
  return { outcome, said: reader.finish() };
}

/** Waits for all output, but not for output of a process that outlived the command. */
async function drained(child: RunningCommand): Promise<void> {
  const exited = new Promise<void>((done) => child.once('exit', () => setTimeout(done, DRAIN_MS).unref()));
  const streams = [child.stdout, child.stderr].filter((stream) => stream !== null);
  await Promise.race([Promise.all(streams.map((stream) => finished(stream).catch(() => {}))), exited]);
}

function failed(name: string, end: ChildEnd, voice: RunVoice): CheckResult {
  voice.trouble(`nothing was compared: the command failed on ${name}'s own allocator`);
  return { kind: 'failed', end, outcome: undefined };
}

function hasFailed({ code, signal }: ChildEnd): boolean {
  return code !== 0 || signal !== null;
}
