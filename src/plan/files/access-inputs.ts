// Readers for recordings of memory accesses: .weir traces with operators, and the JSON of the recording scripts.
import { PhaseMark } from '../../abi/events.ts';
import { InputError } from '../../base/errors.ts';
import { liveSize } from '../../trace/summary.ts';
import { EventKind, type Trace } from '../../trace/trace.ts';
import { opsOfTrace } from '../steps/memory-ops.ts';
import { findPeriod, isPeriodic, longestStretch } from '../steps/period.ts';
import type { AccessRecording } from '../swaps/accesses.ts';
import { BlockCollector, finishRecording, type OpenBlock } from './block-collector.ts';

/** `{steps, ops: [[t0, t1, name, [read], [written]]], trace: [[time, action, address, size, stream]]}`, times in microseconds. */
export function readAccessJson(text: string): AccessRecording {
  const data = parseObject(text);
  const steps = arrayOf(data['steps'], 'steps').map((step) => timesOf(step, 'step'));
  const ops = arrayOf(data['ops'], 'ops').map(operatorOf);
  const trace = arrayOf(data['trace'], 'trace').map(traceRowOf);
  if (steps.length < 2) throw new InputError('the recording has fewer than two steps; record at least two');
  mustAscend(
    steps.map(([start]) => start),
    'steps',
  );
  mustAscend(
    ops.map(({ fromUs }) => fromUs),
    'operators',
  );
  mustAscend(
    trace.map(({ timeUs }) => timeUs),
    'trace rows',
  );
  const collector = new BlockCollector();
  const moments: number[] = [];
  let next = 0;
  const allocate = (until: number) => {
    for (; next < trace.length && trace[next]!.timeUs <= until; next++) {
      const { timeUs, action, address, size } = trace[next]!;
      if (action === 'alloc') collector.begin(address, liveSize(size), timeUs);
      else if (action === 'free_completed') collector.end(address, timeUs);
      if (action === 'alloc' || action === 'free_completed') moments.push(timeUs);
    }
  };
  for (const { fromUs, toUs, reads, writes } of ops) {
    // The output of an operator is allocated while it runs.
    allocate(toUs);
    for (const pointer of reads) collector.access(pointer, { fromUs, toUs, writes: false });
    for (const pointer of writes) collector.access(pointer, { fromUs, toUs, writes: true });
    moments.push(fromUs);
  }
  allocate(Number.POSITIVE_INFINITY);
  const name = typeof data['workload'] === 'string' ? data['workload'] : 'recording';
  return finishRecording(name, collector.blocks, steps, 0, moments);
}

interface OperatorRow {
  readonly fromUs: number;
  readonly toUs: number;
  readonly reads: readonly number[];
  readonly writes: readonly number[];
}

function operatorOf(value: unknown): OperatorRow {
  const [from, to, , reads, writes] = arrayOf(value, 'operator');
  const [fromUs, toUs] = timesOf([from, to], 'operator');
  return { fromUs, toUs, reads: arrayOf(reads, 'reads') as number[], writes: arrayOf(writes, 'writes') as number[] };
}

interface TraceRow {
  readonly timeUs: number;
  readonly action: unknown;
  readonly address: number | string;
  readonly size: number;
}

function traceRowOf(value: unknown, index: number): TraceRow {
  const [timeUs, action, address, size] = arrayOf(value, 'trace row');
  const isAddress = typeof address === 'string' || Number.isFinite(address);
  if (!Number.isFinite(timeUs) || !isAddress || !Number.isSafeInteger(size) || (size as number) < 0)
    throw new InputError(`trace row ${index} of the recording is not [time, action, address, size]`);
  return { timeUs: timeUs as number, action, address: address as number | string, size: size as number };
}

function mustAscend(times: readonly number[], what: string): void {
  if (times.some((time, index) => time < (times[index - 1] ?? time))) throw new InputError(`the ${what} of the recording go back in time`);
}

export function looksLikeAccessJson(text: string): boolean {
  return /^\s*\{\s*"(workload|steps)"\s*:/.test(text.slice(0, 200)) && text.includes('"ops"');
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
  return finishRecording('trace', blocks, stepsOfTrace(trace), 0, moments);
}

/** Steps with accesses: those that the process marked, else those that repeat. */
function stepsOfTrace(trace: Trace): [number, number][] {
  const marked = withOperators(markedSteps(trace), trace);
  if (marked.length > 0) return marked;
  const ops = opsOfTrace(trace);
  const period = findPeriod(ops);
  if (!isPeriodic(period)) throw new InputError(`the recording has no step to plan: ${period.reason}`);
  const stretch = longestStretch(period);
  const timeAt = (op: number) => trace.events.timeUs[ops.event![Math.min(op, ops.count - 1)]!]!;
  const steps: [number, number][] = [];
  for (let op = stretch.from; op + period.length <= stretch.to + period.length; op += period.length)
    steps.push([timeAt(op), timeAt(op + period.length)]);
  const observed = withOperators(steps, trace);
  if (observed.length === 0) throw new InputError('the recording has operators, but none in a step that repeats; record more steps');
  return observed;
}

function markedSteps({ events, symbols }: Trace): [number, number][] {
  const steps: [number, number][] = [];
  let from: number | undefined;
  for (let event = 0; events.detail && event < events.count; event++) {
    if (events.kind[event] !== EventKind.Mark || symbols.strings[events.detail[event]!] !== PhaseMark.step) continue;
    if (from !== undefined) steps.push([from, events.timeUs[event]!]);
    from = events.timeUs[event]!;
  }
  return steps;
}

/** Operators are often recorded for some steps only. The others have no accesses, and are faster. */
function withOperators(steps: readonly [number, number][], { events }: Trace): [number, number][] {
  const times: number[] = [];
  for (let event = 0; event < events.count; event++) if (events.kind[event] === EventKind.Operator) times.push(events.timeUs[event]!);
  let next = 0;
  return steps.filter(([from, to]) => {
    while (next < times.length && times[next]! < from) next++;
    return next < times.length && times[next]! < to;
  });
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

/** Start and end, in microseconds. */
function timesOf(value: unknown, what: string): [number, number] {
  const [from, to, ...others] = arrayOf(value, `times of a ${what}`);
  if (others.length > 0 || !Number.isFinite(from) || !Number.isFinite(to) || (to as number) < (from as number))
    throw new InputError(`the times of a ${what} of the recording must be two numbers, the second not below the first`);
  return [from as number, to as number];
}
