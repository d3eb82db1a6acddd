// The traces that settings of the engine are tuned on. Each belongs to one of two groups, by a hash of its name: those to think
// about, and those held out, which only tell whether a change helps where nobody looked.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { readRecording } from '../../src/trace/detect.ts';
import { liveSize } from '../../src/trace/summary.ts';
import { EventKind, type Trace } from '../../src/trace/trace.ts';
import { type Operations, plainBytes, SHARED, smartPoolTraces } from '../traces.ts';

export interface Subject {
  readonly name: string;
  readonly heldOut: boolean;
  /** A run on one stream; the engine replays it in one call. */
  readonly operations?: Operations;
  /** A run on several streams. */
  readonly trace?: Trace;
}

/** Left out: no GPU has 463 GiB, and its driver time would outweigh all others. */
const HUGE = 'Y_1';
/** Folders beside the repository that hold recordings. */
const FOLDERS = ['traces/train', 'bench/snapshots', 'bench/idealloc'];

/** Every trace of the shared folders and of the given ones. To add a trace is to put its file into a folder. */
export function subjects(folders: readonly string[], wanted: RegExp, withHeldOut: boolean): Subject[] {
  const found: Subject[] = [];
  const add = (name: string, load: () => Pick<Subject, 'operations' | 'trace'>) => {
    const heldOut = isHeldOut(name);
    if (wanted.test(name) && (withHeldOut || !heldOut)) found.push({ name, heldOut, ...load() });
  };
  for (const folder of [...FOLDERS.map((name) => `${SHARED}/${name}`), ...folders]) {
    if (!existsSync(folder)) continue;
    for (const file of readdirSync(folder).sort()) {
      if (file.startsWith(HUGE)) continue;
      const path = join(folder, file);
      if (file.endsWith('.requests.gz')) add(nameOf(file), () => ({ operations: readRequests(nameOf(file), path) }));
      else if (file.endsWith('.csv.gz')) add(`idealloc-${nameOf(file)}`, () => ({ operations: readIntervals(nameOf(file), path) }));
      else if (/\.(pickle|pkl|weir)(\.gz)?$/.test(file) && !file.includes('.expandable.'))
        add(nameOf(file), () => readTrace(nameOf(file), path));
    }
  }
  if (existsSync(`${SHARED}/bench/smartpool`)) for (const operations of smartPoolTraces()) add(operations.name, () => ({ operations }));
  return found;
}

/** Ranks of one job have one name up to the first dot, and so the same group. */
export function isHeldOut(name: string): boolean {
  let hash = 0x811c9dc5;
  for (const letter of name.split('.')[0]!) hash = Math.imul(hash ^ letter.charCodeAt(0), 0x01000193);
  return ((hash >>> 16) & 1) === 1;
}

function nameOf(file: string): string {
  return basename(file).replace(/(\.native)?\.(pickle|pkl|weir|requests|csv)(\.gz)?$/, '');
}

function readTrace(name: string, path: string): Pick<Subject, 'operations' | 'trace'> {
  const trace = readRecording(plainBytes(path)).traces[0]!;
  const single = new Set(trace.streams).size <= 1 && trace.impliedFrees.size === 0 && trace.allocations.liveAtStart === 0;
  return single && trace.allocations.pool.every((pool) => pool === 0) ? { operations: operationsOf(name, trace) } : { trace };
}

function operationsOf(name: string, { events, allocations, allocationOf }: Trace): Operations {
  const builder = new Builder(name);
  for (let event = 0; event < events.count; event++) {
    const allocation = allocationOf[event]!;
    if (allocation < 0) continue;
    if (events.kind[event] === EventKind.Alloc) builder.request(allocation, allocations.requested[allocation]!);
    else if (events.kind[event] === EventKind.FreeCompleted) builder.free(allocation);
  }
  return builder.operations();
}

/** A file of recorder.py: `+BYTES` for the next slot, `-SLOT` for a free. */
function readRequests(name: string, path: string): Operations {
  const builder = new Builder(name);
  let next = 0;
  for (const line of gunzipSync(readFileSync(path)).toString().split('\n')) {
    if (line.startsWith('+')) builder.request(next++, Number(line.slice(1)));
    else builder.free(Number(line.slice(1)));
  }
  return builder.operations();
}

/** A file of idealloc: lifetimes `id,lower,upper,size`. At equal times frees come first. */
function readIntervals(name: string, path: string): Operations {
  const rows = plainBytes(path)
    .toString()
    .trim()
    .split('\n')
    .slice(1)
    .map((line) => line.split(',').map(Number));
  const edges = rows.flatMap(([, lower, upper, size], slot) => [
    { time: lower!, slot, bytes: size! },
    { time: upper!, slot, bytes: 0 },
  ]);
  edges.sort((a, b) => a.time - b.time || Number(a.bytes > 0) - Number(b.bytes > 0) || a.slot - b.slot);
  const builder = new Builder(`idealloc-${name}`);
  for (const { slot, bytes } of edges)
    if (bytes > 0) builder.request(slot, bytes);
    else builder.free(slot);
  return builder.operations();
}

/** Gathers requests and frees. An allocation that is freed without a request is left out. */
class Builder {
  private readonly slots = new Map<number, number>();
  private readonly slot: number[] = [];
  private readonly bytes: number[] = [];
  private count = 0;
  private readonly name: string;

  constructor(name: string) {
    this.name = name;
  }

  request(key: number, bytes: number): void {
    this.slots.set(key, this.count);
    this.slot.push(this.count++);
    this.bytes.push(Math.max(1, bytes));
  }

  free(key: number): void {
    const slot = this.slots.get(key);
    if (slot === undefined) return;
    this.slots.delete(key);
    this.slot.push(slot);
    this.bytes.push(0);
  }

  operations(): Operations {
    const slot = Uint32Array.from(this.slot);
    const bytes = Float64Array.from(this.bytes);
    return { name: this.name, slot, bytes, slots: this.count, peakLive: peakLive(slot, bytes) };
  }
}

export function peakLive(slot: Uint32Array, bytes: Float64Array): number {
  const held = new Map<number, number>();
  let live = 0;
  let peak = 0;
  for (let index = 0; index < slot.length; index++) {
    const size = liveSize(bytes[index]!);
    if (bytes[index]! > 0) {
      held.set(slot[index]!, size);
      live += size;
      peak = Math.max(peak, live);
    } else {
      live -= held.get(slot[index]!) ?? 0;
    }
  }
  return peak;
}
