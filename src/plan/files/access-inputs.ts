// Readers for recordings of memory accesses: .weir traces with operators, the JSON of the recording scripts,
// and the traces of the AutoSwap study.
import { InputError } from '../../base/errors.ts';
import { liveSize } from '../../trace/summary.ts';
import { EventKind, type Trace } from '../../trace/trace.ts';
import { opsOfTrace } from '../steps/memory-ops.ts';
import { findPeriod, isPeriodic, longestStretch } from '../steps/period.ts';
import type { Access, AccessRecording, RecordedBlock } from '../swaps/accesses.ts';

interface OpenBlock {
  readonly size: number;
  readonly birthUs: number;
  deathUs: number;
  readonly accesses: Access[];
}

/** Collects blocks by pointer. A pointer may be reused after its block was freed. */
class BlockCollector {
  readonly blocks: OpenBlock[] = [];
  private readonly open = new Map<number | string, OpenBlock>();

  begin(pointer: number | string, size: number, timeUs: number): void {
    this.end(pointer, timeUs);
    const block: OpenBlock = { size, birthUs: timeUs, deathUs: Number.POSITIVE_INFINITY, accesses: [] };
    this.blocks.push(block);
    this.open.set(pointer, block);
  }

  end(pointer: number | string, timeUs: number): void {
    const block = this.open.get(pointer);
    if (block) block.deathUs = timeUs;
    this.open.delete(pointer);
  }

  has(pointer: number | string): boolean {
    return this.open.has(pointer);
  }

  access(pointer: number | string, access: Access): void {
    const block = this.open.get(pointer);
    const last = block?.accesses.at(-1);
    if (!block) return;
    // If an operator reads and writes a block, that is one access.
    if (last && last.fromUs === access.fromUs)
      block.accesses[block.accesses.length - 1] = { ...access, writes: access.writes || last.writes };
    else block.accesses.push(access);
  }
}

/** `{steps, ops: [[t0, t1, name, [read], [written]]], trace: [[time, action, address, size, stream]]}`, times in microseconds. */
export function readAccessJson(text: string): AccessRecording {
  const data = parseObject(text);
  const steps = arrayOf(data['steps'], 'steps').map((step) => numbersOf(step, 'step', 2) as [number, number]);
  const ops = arrayOf(data['ops'], 'ops').map((op) => arrayOf(op, 'operator'));
  const trace = arrayOf(data['trace'], 'trace').map((row) => arrayOf(row, 'trace row'));
  if (steps.length < 2) throw new InputError('the recording has fewer than two steps; record at least two');
  const collector = new BlockCollector();
  const moments: number[] = [];
  let next = 0;
  const allocate = (until: number) => {
    for (; next < trace.length && Number(trace[next]![0]) <= until; next++) {
      const [time, action, address, size] = trace[next]! as [number, string, number, number];
      if (action === 'alloc') collector.begin(address, liveSize(size), time);
      else if (action === 'free_completed') collector.end(address, time);
      if (action === 'alloc' || action === 'free_completed') moments.push(time);
    }
  };
  for (const op of ops) {
    const [fromUs, toUs] = numbersOf(op.slice(0, 2), 'operator', 2) as [number, number];
    const reads = arrayOf(op[3], 'reads') as number[];
    const writes = arrayOf(op[4], 'writes') as number[];
    // The output of an operator is allocated while it runs.
    allocate(toUs);
    for (const pointer of reads) collector.access(pointer, { fromUs, toUs, writes: false });
    for (const pointer of writes) collector.access(pointer, { fromUs, toUs, writes: true });
    moments.push(fromUs);
  }
  allocate(Number.POSITIVE_INFINITY);
  const name = typeof data['workload'] === 'string' ? data['workload'] : 'recording';
  return finish(name, collector.blocks, steps, 0, moments);
}

export function looksLikeAccessJson(text: string): boolean {
  return /^\s*\{\s*"(workload|steps)"\s*:/.test(text.slice(0, 200)) && text.includes('"ops"');
}

/**
 * Reads `op ptr size ns` or `index op ptr size ns` lines of the AutoSwap study. `stepEvents` is the number of events
 * per step.
 */
export function readAutoSwapText(text: string, stepEvents: number, peakBytes?: number): AccessRecording {
  const rows = text
    .trim()
    .split('\n')
    .map((line) => line.trim().split(/\s+/))
    .map((fields) => (/^\d+$/.test(fields[0] ?? '') ? fields.slice(1) : fields));
  return autoSwapRecording('autoswap', rows, { Malloc: 1, Free: -1, Read: 2, Layer: 3, Mutable: 4 }, stepEvents, peakBytes);
}

/** Reads `op,ptr,size,ns` lines of the later rewrite, in which operations are numbers. */
function readAutoSwapCsv(text: string, stepEvents: number): AccessRecording {
  const rows = text
    .trim()
    .split('\n')
    .map((line) => line.split(','));
  return autoSwapRecording('autoswap', rows, { '1': 1, '-1': -1, '2': 2, '3': 3, '4': 4 }, stepEvents);
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
  const tokens = text
    .trim()
    .split('\n')
    .map((line) => {
      const fields = isCsv
        ? line.split(',')
        : line
            .trim()
            .replace(/^\d+\s+/, '')
            .split(/\s+/);
      return `${fields[0]} ${fields[2]}`;
    });
  const { step, end } = findRepetition(tokens);
  if (step === 0) throw new InputError('the trace has no step to plan: no sequence of events comes twice in a row');
  // Keeps whole steps only, counted back from the end of the repetition.
  const kept = text
    .trim()
    .split('\n')
    .slice(end % step, end)
    .join('\n');
  return isCsv ? readAutoSwapCsv(kept, step) : readAutoSwapText(kept, step);
}

/** Number of positions tried as the end of the repetition. A run ends with frees that no step has. */
const ENDS = 200;

function findRepetition(items: readonly string[]): { step: number; end: number } {
  for (let cut = 0; cut < ENDS; cut++) {
    const end = Math.floor(items.length * (1 - cut / (2 * ENDS)));
    const step = lastRepetition(items.slice(0, end));
    if (step > 0) return { step, end };
  }
  return { step: 0, end: 0 };
}

/** A shorter repetition is a loop inside a step. */
const LEAST_STEP = 64;
const LEAST_SHARE = 0.4;

/** The smallest n such that the last n items equal the n items before them; 0 if there is none. Linear time. */
function lastRepetition(items: readonly string[]): number {
  const count = items.length;
  const at = (index: number) => items[count - 1 - index];
  // The Z function of the reversed sequence: how many items from each position on equal its beginning.
  const agrees = new Int32Array(count);
  let left = 0;
  let right = 0;
  for (let place = 1; place < count; place++) {
    let length = place < right ? Math.min(right - place, agrees[place - left]!) : 0;
    while (place + length < count && at(length) === at(place + length)) length++;
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

function autoSwapRecording(
  name: string,
  rows: readonly (readonly string[])[],
  kinds: Readonly<Record<string, number>>,
  stepEvents: number,
  peakBytes?: number,
): AccessRecording {
  // Nanoseconds since 1970 are too large for a double, so the first time is subtracted as a bigint.
  const epoch = BigInt(rows[0]?.[3] ?? '0');
  const timeOf = (row: readonly string[]) => Number(BigInt(row[3]!) - epoch) / 1000;
  const collector = new BlockCollector();
  const moments: number[] = [];
  const first = new Map<string, string>();
  for (const [operation, pointer] of rows) if (pointer !== undefined && !first.has(pointer)) first.set(pointer, operation!);
  for (const row of rows) {
    // If the first event of a pointer is not a malloc, its block is older than the recording.
    const kind = first.get(row[1]!);
    if (kind !== undefined && kinds[kind] !== 1) {
      collector.begin(row[1]!, Number(row[2]), Number.NEGATIVE_INFINITY);
      first.delete(row[1]!);
    }
  }
  rows.forEach((row, index) => {
    const kind = kinds[row[0]!];
    if (kind === undefined || row.length < 4) throw new InputError(`line ${index + 1} is not an event of an AutoSwap trace`);
    const fromUs = timeOf(row);
    const toUs = index + 1 < rows.length ? timeOf(rows[index + 1]!) : fromUs;
    moments.push(fromUs);
    if (kind === 1) collector.begin(row[1]!, Number(row[2]), fromUs);
    else if (kind === -1) collector.end(row[1]!, fromUs);
    else collector.access(row[1]!, { fromUs, toUs, writes: kind === 4 });
  });
  const steps: [number, number][] = [];
  for (let at = 0; at + stepEvents <= rows.length; at += stepEvents) {
    const end = at + stepEvents < rows.length ? moments[at + stepEvents]! : moments.at(-1)!;
    steps.push([moments[at]!, end]);
  }
  const recording = finish(name, collector.blocks, steps, 0, moments);
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

/** Whether a trace holds operators, which swap planning needs. */
export function hasAccesses(trace: Trace): boolean {
  return trace.events.kind.subarray(0, trace.events.count).includes(EventKind.Operator);
}

/** Reads a .weir trace: Operator events, each followed by its reads and writes. Steps come from marks or from repetition. */
export function accessesOfTrace(trace: Trace): AccessRecording {
  const { events, allocations, allocationOf } = trace;
  const blocks: OpenBlock[] = [];
  const byAddress = new Map<number, OpenBlock>();
  const byAllocation: (OpenBlock | undefined)[] = [];
  for (let index = 0; index < allocations.count; index++) {
    const began = allocations.allocEvent[index]!;
    const ended = Math.max(allocations.freeCompletedEvent[index]!, allocations.freeRequestedEvent[index]!);
    const block: OpenBlock = {
      size: liveSize(allocations.requested[index]!),
      birthUs: began < 0 ? Number.NEGATIVE_INFINITY : events.timeUs[began]!,
      deathUs: ended < 0 ? Number.POSITIVE_INFINITY : events.timeUs[ended]!,
      accesses: [],
    };
    blocks.push(block);
    byAllocation[index] = block;
    if (began < 0) byAddress.set(allocations.address[index]!, block);
  }
  const moments: number[] = [];
  let fromUs = 0;
  let toUs = 0;
  for (let event = 0; event < events.count; event++) {
    const kind = events.kind[event];
    if (kind === EventKind.Operator) {
      fromUs = events.timeUs[event]!;
      toUs = fromUs + events.size[event]!;
      moments.push(fromUs);
    } else if (kind === EventKind.Alloc) {
      byAddress.set(events.address[event]!, byAllocation[allocationOf[event]!]!);
      moments.push(events.timeUs[event]!);
    } else if (kind === EventKind.Read || kind === EventKind.Write) {
      const block = byAddress.get(events.address[event]!);
      const last = block?.accesses.at(-1);
      const writes = kind === EventKind.Write;
      if (block && last?.fromUs === fromUs) block.accesses[block.accesses.length - 1] = { fromUs, toUs, writes: writes || last.writes };
      else block?.accesses.push({ fromUs, toUs, writes });
    }
  }
  return finish('trace', blocks, stepsOfTrace(trace), 0, moments);
}

function stepsOfTrace(trace: Trace): [number, number][] {
  const ops = opsOfTrace(trace);
  const period = findPeriod(ops);
  if (!isPeriodic(period)) throw new InputError(`the recording has no step to plan: ${period.reason}`);
  const stretch = longestStretch(period);
  const timeAt = (op: number) => trace.events.timeUs[ops.event![Math.min(op, ops.count - 1)]!]!;
  const steps: [number, number][] = [];
  for (let op = stretch.from; op + period.length <= stretch.to + period.length; op += period.length)
    steps.push([timeAt(op), timeAt(op + period.length)]);
  return steps;
}

function finish(
  name: string,
  blocks: readonly RecordedBlock[],
  steps: [number, number][],
  untouchedBytes: number,
  moments: number[],
): AccessRecording {
  return { name, blocks, steps, untouchedBytes, momentsUs: Float64Array.from(moments).sort() };
}

function parseObject(text: string): Record<string, unknown> {
  try {
    const data: unknown = JSON.parse(text);
    if (typeof data === 'object' && data !== null) return data as Record<string, unknown>;
  } catch {
    // Reported below.
  }
  throw new InputError('the file is not a JSON object; a recording of accesses has the keys steps, ops and trace');
}

function arrayOf(value: unknown, what: string): unknown[] {
  if (!Array.isArray(value)) throw new InputError(`the recording of accesses has no list of ${what}`);
  return value;
}

function numbersOf(value: unknown, what: string, length: number): number[] {
  const list = arrayOf(value, what);
  if (list.length !== length || !list.every((item) => typeof item === 'number' && Number.isFinite(item))) {
    throw new InputError(`a ${what} of the recording has the times ${JSON.stringify(value).slice(0, 60)}; they must be numbers`);
  }
  return list as number[];
}
