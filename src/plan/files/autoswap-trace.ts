// Readers for the traces of the AutoSwap study, in its text form and in the later rewrite as CSV.
import { InputError } from '../../base/errors.ts';
import type { AccessRecording } from '../swaps/accesses.ts';
import { BlockCollector, finishRecording } from './block-collector.ts';

/** Operations by their names in the text form, and by their numbers in the CSV form. */
const OPERATIONS: ReadonlyMap<string, Operation> = new Map([
  ['Malloc', 'malloc'],
  ['Free', 'free'],
  ['Read', 'use'],
  ['Layer', 'use'],
  ['Mutable', 'write'],
]);
const NUMBERED_OPERATIONS: ReadonlyMap<string, Operation> = new Map([
  ['1', 'malloc'],
  ['-1', 'free'],
  ['2', 'use'],
  ['3', 'use'],
  ['4', 'write'],
]);
type Operation = 'malloc' | 'free' | 'use' | 'write';

interface Row {
  readonly operation: Operation;
  readonly pointer: string;
  readonly size: number;
  readonly timeUs: number;
}

/**
 * Reads `op ptr size ns` or `index op ptr size ns` lines of the AutoSwap study. `stepEvents` is the number of events
 * per step.
 */
export function readAutoSwapText(text: string, stepEvents: number, peakBytes?: number): AccessRecording {
  return autoSwapRecording(rowsOf(linesOf(text).map(textFields), OPERATIONS), stepEvents, peakBytes);
}

/** Reads `op,ptr,size,ns` lines of the later rewrite, in which operations are numbers. */
function readAutoSwapCsv(text: string, stepEvents: number): AccessRecording {
  const fields = linesOf(text).map((line) => line.split(','));
  return autoSwapRecording(rowsOf(fields, NUMBERED_OPERATIONS), stepEvents);
}

function linesOf(text: string): string[] {
  return text.trim().split('\n');
}

function textFields(line: string): string[] {
  const fields = line.trim().split(/\s+/);
  return /^\d+$/.test(fields[0]!) ? fields.slice(1) : fields;
}

/** Whether the text is a trace of the AutoSwap study, in either form. */
export function looksLikeAutoSwap(text: string): boolean {
  const start = text.slice(0, 4096);
  return (
    /^-?[1-4],0x[0-9a-f]+,\d+,\d+\s/.test(start) ||
    (/^(\d+\s+)?Malloc\s+0x[0-9a-f]+\s+\d+\s+\d+\s/.test(start) && /^(\d+\s+)?(Read|Mutable|Layer)\s/m.test(start))
  );
}

/** Reads either form and finds its step. */
export function readAutoSwap(text: string): AccessRecording {
  const isCsv = /^-?\d,/.test(text);
  const lines = linesOf(text);
  const numbers = new Map<string, number>();
  const tokens = Int32Array.from(lines, (line) => {
    const fields = isCsv ? line.split(',') : textFields(line);
    const token = `${fields[0]} ${fields[2]}`;
    const number = numbers.get(token) ?? numbers.size;
    numbers.set(token, number);
    return number;
  });
  const { step, end } = findRepetition(tokens);
  if (step === 0) throw new InputError('the trace has no step to plan: no sequence of events comes twice in a row');
  // Keeps whole steps only, counted back from the end of the repetition.
  const kept = lines.slice(end % step, end).join('\n');
  return isCsv ? readAutoSwapCsv(kept, step) : readAutoSwapText(kept, step);
}

/** Number of positions tried as the end of the repetition. A run ends with frees that no step has. */
const ENDS = 200;

function findRepetition(items: Int32Array): { step: number; end: number } {
  const reversed = items.slice().reverse();
  const agrees = new Int32Array(items.length);
  for (let cut = 0; cut < ENDS; cut++) {
    const end = Math.floor(items.length * (1 - cut / (2 * ENDS)));
    const step = firstRepetition(reversed.subarray(items.length - end), agrees);
    if (step > 0) return { step, end };
  }
  return { step: 0, end: 0 };
}

/** A shorter repetition is a loop inside a step. */
const LEAST_STEP = 64;
const LEAST_SHARE = 0.4;

/** The smallest n such that the first n items equal the n items after them; 0 if there is none. Linear time. */
function firstRepetition(items: Int32Array, agrees: Int32Array): number {
  const count = items.length;
  // The Z function: how many items from each position on equal the beginning.
  let left = 0;
  let right = 0;
  for (let place = 1; place < count; place++) {
    let length = place < right ? Math.min(right - place, agrees[place - left]!) : 0;
    while (place + length < count && items[length] === items[place + length]) length++;
    agrees[place] = length;
    if (place + length > right) {
      left = place;
      right = place + length;
    }
    // A loop inside a step repeats too, but not through most of the run.
    if (place >= LEAST_STEP && length >= place && length + place >= count * LEAST_SHARE) return place;
  }
  return 0;
}

/** A time in nanoseconds since 1970 has 19 digits. */
const TIME = /^\d{1,20}$/;

function rowsOf(lines: readonly (readonly string[])[], operations: ReadonlyMap<string, Operation>): Row[] {
  let epoch: bigint | undefined;
  let latest = 0;
  return lines.map(([name, pointer, bytes, time], index) => {
    const operation = operations.get(name ?? '');
    const size = /^\s*\d+\s*$/.test(bytes ?? '') ? Number(bytes) : Number.NaN;
    if (operation === undefined || pointer === undefined || !Number.isSafeInteger(size) || !TIME.test(time?.trim() ?? ''))
      throw new InputError(`line ${index + 1} is not an event of an AutoSwap trace`);
    // Nanoseconds since 1970 are too large for a double, so the first time is subtracted as a bigint.
    const ns = BigInt(time!.trim());
    epoch ??= ns;
    const timeUs = Number(ns - epoch) / 1000;
    if (timeUs < latest) throw new InputError(`line ${index + 1} is earlier than the line before`);
    latest = timeUs;
    return { operation, pointer, size, timeUs };
  });
}

function autoSwapRecording(rows: readonly Row[], stepEvents: number, peakBytes?: number): AccessRecording {
  const collector = new BlockCollector();
  const seen = new Set<string>();
  for (const { operation, pointer, size } of rows) {
    // If the first event of a pointer is not a malloc, its block is older than the recording.
    if (!seen.has(pointer) && operation !== 'malloc') collector.begin(pointer, size, Number.NEGATIVE_INFINITY);
    seen.add(pointer);
  }
  rows.forEach(({ operation, pointer, size, timeUs }, index) => {
    if (operation === 'malloc') collector.begin(pointer, size, timeUs);
    else if (operation === 'free') collector.end(pointer, timeUs);
    else collector.access(pointer, { fromUs: timeUs, toUs: rows[index + 1]?.timeUs ?? timeUs, writes: operation === 'write' });
  });
  const steps: [number, number][] = [];
  for (let at = 0; at + stepEvents <= rows.length; at += stepEvents)
    steps.push([rows[at]!.timeUs, (rows[at + stepEvents] ?? rows.at(-1)!).timeUs]);
  const moments = rows.map(({ timeUs }) => timeUs);
  const recording = finishRecording('autoswap', collector.blocks, steps, 0, moments);
  return peakBytes === undefined ? recording : { ...recording, untouchedBytes: Math.max(0, peakBytes - peakOf(recording)) };
}

/** Peak of live bytes in the recorded blocks. */
function peakOf(recording: AccessRecording): number {
  const moments = recording.blocks.flatMap((block) => [
    { time: block.birthUs, bytes: block.size },
    { time: block.deathUs, bytes: -block.size },
  ]);
  moments.sort((a, b) => (a.time === b.time ? a.bytes - b.bytes : a.time - b.time));
  let live = 0;
  let peak = 0;
  for (const { bytes } of moments) {
    live += bytes;
    peak = Math.max(peak, live);
  }
  return peak;
}
