// Reads PyTorch's memory snapshots: decodes the file into rows, finds the parts of the snapshot in them,
// and assembles a trace for each GPU.
import { formatBytes } from '../../base/bytes.ts';
import type { ColumnMemory } from '../../base/columns.ts';
import { formatCount, formatTimes } from '../../base/counts.ts';
import { InputError } from '../../base/errors.ts';
import { assembleTrace } from '../assemble.ts';
import { ByteWindow } from '../byte-window.ts';
import { EventStore } from '../event-store.ts';
import { hostMemoryFrom, hostMemoryOf } from '../host-memory.ts';
import type { EventColumns, HostMemory, Recording, Segment, SettingValue, Trace, Warning } from '../trace.ts';
import { rangeLength, rangeStart } from './containers.ts';
import { HOST_DEVICE } from './dict-fields.ts';
import { JsonDecoder } from './json.ts';
import { KNOWN_NAMES, Word } from './names.ts';
import { PickleDecoder } from './pickle.ts';
import { Rows } from './rows.ts';
import { SegmentBuilder } from './segments.ts';
import { settingsOf } from './settings.ts';
import { describeTag, type SnapshotDecoder, Tag } from './values.ts';

/** A file of many events would otherwise reserve memory for all of them at once. */
const MAX_EXPECTED_EVENTS = 2 ** 23;
/** Unknown actions that a message names. */
const SHOWN_ACTIONS = 4;
/** c10::DeviceIndex is an int8_t. */
const MAX_DEVICES = 1024;
/** Bytes of the shortest events of real recordings. */
const PICKLED_EVENT = 60;
const JSON_EVENT = 150;

/** Reads a snapshot piece by piece. */
export class SnapshotReader {
  private readonly rows: Rows;
  private readonly decoder: SnapshotDecoder;
  private readonly window = new ByteWindow();
  private readonly memory: ColumnMemory | undefined;
  private total = 0;

  /** `expectedBytes` is a guess at the size of the file, for the first size of the tables. */
  constructor(format: 'pickle' | 'json', expectedBytes: number, memory?: ColumnMemory) {
    this.memory = memory;
    const events = expectedBytes / (format === 'pickle' ? PICKLED_EVENT : JSON_EVENT);
    this.rows = new Rows(Math.min(MAX_EXPECTED_EVENTS, 256 + Math.ceil(events)), memory);
    this.decoder = format === 'pickle' ? new PickleDecoder(this.rows, expectedBytes) : new JsonDecoder(this.rows);
  }

  /** Whether the snapshot is complete. What follows is of no interest, except that JSON must be at its end. */
  get isDone(): boolean {
    return this.decoder.isDone;
  }

  push(piece: Uint8Array): void {
    this.decode(piece, false);
    const { decoder } = this;
    this.rows.check(this.total, decoder.held + this.window.pending, decoder.open);
  }

  finish(): Recording {
    const { decoder } = this;
    this.decode(new Uint8Array(0), true);
    if (!decoder.isDone || this.window.pending > 0 || decoder.isCut(this.total)) {
      throw new InputError(
        `the ${decoder.format} ends early, at byte ${this.total}: the file is truncated; copy it again or take the snapshot again`,
      );
    }
    return withinMemory(() => ({
      format: decoder.format === 'pickle' ? 'pickle' : 'json',
      traces: new SnapshotParts(this.rows, this.memory).traces(),
    }));
  }

  private decode(piece: Uint8Array, isLast: boolean): void {
    this.total += piece.length;
    withinMemory(() => this.window.feed(piece, (bytes) => this.decoder.decode(bytes, this.window.offset, isLast)));
  }
}

/** A file of many gigabytes can exceed the limits of arrays and maps. That RangeError is no defect, unlike endless recursion. */
function withinMemory<Result>(read: () => Result): Result {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof RangeError) || error.message.includes('call stack')) throw error;
    throw new InputError(`the file needs more memory than this machine allows (${error.message}); open it on a larger machine`);
  }
}

interface Value {
  readonly tag: number;
  readonly value: number;
}

/** Rows `from` to `to` of the event store. */
interface Range {
  readonly from: number;
  readonly to: number;
}

/** The parts of a decoded snapshot. */
class SnapshotParts {
  private readonly rows: Rows;
  private readonly memory: ColumnMemory | undefined;
  private readonly top = new Map<number, Value>();
  /** Entries of all traces so far. */
  private listed = 0;
  private hostProblem: string | undefined;

  constructor(rows: Rows, memory: ColumnMemory | undefined) {
    this.rows = rows;
    this.memory = memory;
  }

  traces(): Trace[] {
    this.readTop();
    const events = this.eventsByDevice();
    const builder = new SegmentBuilder(this.rows);
    const segments = this.segmentsByDevice(builder);
    const settings = this.settings();
    const hostMemory = this.hostMemory(builder);
    const warnings = this.warnings(events, hostMemory);
    const devices = [...new Set([...events.keys(), ...segments.keys()])].sort((a, b) => a - b);
    if (devices.length === 0) throw new InputError(this.emptyWords(hostMemory));
    const { rows } = this;
    return devices.map((device) =>
      assembleTrace({
        device,
        events: this.columns(events.get(device) ?? []),
        startSegments: undefined,
        endSegments: this.top.has(Word.segments) ? (segments.get(device) ?? []) : undefined,
        streams: rows.streams,
        pools: rows.pools.pools,
        symbols: rows.symbols,
        settings,
        limits: { deviceBytes: this.positive(Word.total), memoryFraction: this.positive(Word.frac) },
        annotations: rows.annotations,
        hostMemory,
        warnings,
        memory: this.memory,
      }),
    );
  }

  /** Finds the parts by name. A bare list of segments, as in old files, counts as the part `segments`. */
  private readTop(): void {
    const { rows, top } = this;
    const tag = rows.stack.tags[0]!;
    const value = rows.stack.values[0]!;
    if (tag === Tag.GenericDict)
      rows.containers.forEachEntry(value, (key, itemTag, itemValue) => {
        if (key >= 0 && key < KNOWN_NAMES.length) top.set(key, { tag: itemTag, value: itemValue });
      });
    else if (tag === Tag.List || this.isSegmentList(tag, value)) top.set(Word.segments, { tag, value });
    else throw new InputError(`${this.foundInstead(tag, value)}, not a memory snapshot`);
    const traces = top.get(Word.traces);
    if (traces && !top.has(Word.device_traces)) top.set(Word.device_traces, traces);
    if (!top.has(Word.segments) && !top.has(Word.device_traces)) {
      throw new InputError(
        `${this.foundInstead(tag, value)}, not a memory snapshot, which has the keys 'segments' and 'device_traces' (torch.cuda.memory._dump_snapshot writes one)`,
      );
    }
  }

  private isSegmentList(tag: number, value: number): boolean {
    if (tag !== Tag.GenericList) return false;
    let segments = true;
    this.rows.containers.forEach(value, (itemTag) => {
      segments = itemTag === Tag.Segment;
      return false;
    });
    return segments;
  }

  private foundInstead(tag: number, value: number): string {
    const { containers, strings } = this.rows;
    if (tag === Tag.GenericDict) {
      const keys: string[] = [];
      containers.forEachEntry(value, (key) => {
        if (keys.length < 6) keys.push(key < 0 ? '(no text)' : `'${strings.text(key).slice(0, 40)}'`);
      });
      const more = containers.size(value) / 2 > keys.length ? ', ...' : '';
      return `the file holds a dict with the keys ${keys.join(', ')}${more}`;
    }
    let of = '';
    if (tag === Tag.GenericList) {
      containers.forEach(value, (itemTag) => {
        of = ` that begins with ${describeTag(itemTag)}`;
        return false;
      });
    }
    return `the file holds ${describeTag(tag)}${of}`;
  }

  private eventsByDevice(): Map<number, Range[]> {
    const { containers } = this.rows;
    const found = new Map<number, Range[]>();
    const traces = this.top.get(Word.device_traces);
    if (!traces || traces.tag === Tag.List || traces.tag === Tag.None) return found;
    if (traces.tag !== Tag.GenericList) throw new InputError(`'device_traces' is ${describeTag(traces.tag)} instead of a list of lists`);
    let device = 0;
    containers.forEach(traces.value, (tag, value) => {
      if (tag === Tag.GenericList) {
        const ranges = this.rangesOf(value, `the trace of GPU ${device}`);
        if (ranges.length > 0) found.set(checkedDevice(device), ranges);
      } else if (tag !== Tag.List) {
        throw new InputError(`the trace of GPU ${device} is ${describeTag(tag)} instead of a list of entries`);
      }
      device++;
      return true;
    });
    return found;
  }

  private rangesOf(container: number, what: string): Range[] {
    const ranges: Range[] = [];
    this.rows.containers.forEach(container, (tag, range) => {
      if (tag !== Tag.EventRange) throw new InputError(`${what} holds ${describeTag(tag)} where an entry with an 'action' is expected`);
      this.listed += rangeLength(range);
      // Otherwise a small file that lists one entry a million times would take gigabytes.
      if (this.listed > this.rows.events.count) throw new InputError('the trace lists the same entry more than once: the file is damaged');
      ranges.push({ from: rangeStart(range), to: rangeStart(range) + rangeLength(range) });
      return true;
    });
    return ranges;
  }

  /** Undefined if it was not recorded: PyTorch 2.14 and later write empty lists then. A damaged part costs only itself. */
  private hostMemory(builder: SegmentBuilder): HostMemory | undefined {
    try {
      const events = this.hostList(Word.host_traces, (container) => this.rangesOf(container, "'host_traces'"));
      const segments = this.hostList(Word.host_segments, (container) => this.hostSegments(container, builder));
      if (events || segments) return hostMemoryOf(this.columns(events ?? []), segments);
    } catch (error) {
      if (!(error instanceof InputError)) throw error;
      this.hostProblem = error.message;
      return undefined;
    }
    const kept = this.top.get(Word.pinned_host_memory);
    return kept?.tag === Tag.GenericDict ? hostMemoryFrom(Object.fromEntries(settingsOf(this.rows, kept.value))) : undefined;
  }

  private hostList<Items>(word: number, read: (container: number) => Items): Items | undefined {
    const list = this.top.get(word);
    if (!list || list.tag === Tag.List || list.tag === Tag.None) return undefined;
    if (list.tag !== Tag.GenericList) throw new InputError(`'${KNOWN_NAMES[word]}' is ${describeTag(list.tag)} instead of a list`);
    return read(list.value);
  }

  private hostSegments(container: number, builder: SegmentBuilder): Segment[] {
    const found: Segment[] = [];
    this.rows.containers.forEach(container, (tag, value) => {
      if (tag !== Tag.Segment) throw new InputError(`'host_segments' holds ${describeTag(tag)} where a segment is expected`);
      found.push(builder.build(value).segment);
      return true;
    });
    return found;
  }

  /** Why there is nothing about any GPU. */
  private emptyWords(hostMemory: HostMemory | undefined): string {
    if (hostMemory)
      return `the snapshot is about pinned host memory only (${formatBytes(hostMemory.peakHeld)} at its peak): record without record_cuda=False to see GPU memory`;
    const unknown = this.unknownActionWords();
    return unknown === undefined
      ? 'the snapshot is empty: call torch.cuda.memory._record_memory_history() before the work, and check that the job used the GPU'
      : `the snapshot holds only entries that weir does not know, ${unknown}: it is damaged, or a newer weir is needed`;
  }

  private columns(ranges: readonly Range[]): EventColumns {
    const { events } = this.rows;
    const first = ranges[0];
    if (!first) return events.view(0, 0);
    if (ranges.every((range, index) => index === 0 || range.from === ranges[index - 1]!.to)) {
      return events.view(first.from, ranges[ranges.length - 1]!.to);
    }
    return gathered(events.view(), ranges, this.memory);
  }

  private segmentsByDevice(builder: SegmentBuilder): Map<number, Segment[]> {
    const { containers, symbols } = this.rows;
    const found = new Map<number, Segment[]>();
    const listed = this.top.get(Word.segments);
    if (!listed || listed.tag === Tag.List || listed.tag === Tag.None) return found;
    if (listed.tag !== Tag.GenericList) throw new InputError(`'segments' is ${describeTag(listed.tag)} instead of a list`);
    containers.forEach(listed.value, (tag, value) => {
      if (tag !== Tag.Segment) throw new InputError(`'segments' holds ${describeTag(tag)} where a segment is expected`);
      const { device, segment } = builder.build(value);
      if (device === HOST_DEVICE) throw new InputError("'segments' holds pinned host memory where a segment of a GPU is expected");
      const ofDevice = found.get(device);
      if (ofDevice) ofDevice.push(segment);
      else found.set(checkedDevice(device), [segment]);
      return true;
    });
    for (const segments of found.values()) {
      segments.sort((a, b) => a.address - b.address);
      segments.forEach((segment, index) => {
        const before = segments[index - 1];
        if (before && before.address + before.size > segment.address) {
          throw new InputError(`two segments overlap at ${symbols.addresses.format(segment.address)}: the file is damaged`);
        }
      });
    }
    return found;
  }

  private settings(): ReadonlyMap<string, SettingValue> {
    const settings = this.top.get(Word.allocator_settings);
    return settings?.tag === Tag.GenericDict ? settingsOf(this.rows, settings.value) : new Map();
  }

  private positive(word: number): number | undefined {
    const found = this.top.get(word);
    return found?.tag === Tag.Number && found.value > 0 ? found.value : undefined;
  }

  /** `7 of the action 'x', 2 of 'y'`; undefined if all actions are known. */
  private unknownActionWords(): string | undefined {
    const counts = [...this.rows.unknownActions].sort((a, b) => b[1] - a[1]);
    if (counts.length === 0) return undefined;
    const shown = counts.slice(0, SHOWN_ACTIONS).map(([name, count]) => `${formatCount(count)} of the action '${name.slice(0, 40)}'`);
    const rest = counts.slice(SHOWN_ACTIONS).reduce((sum, [, count]) => sum + count, 0);
    return [...shown, ...(rest > 0 ? [`${formatCount(rest)} of others`] : [])].join(', ');
  }

  private warnings(events: ReadonlyMap<number, unknown>, hostMemory: HostMemory | undefined): Warning[] {
    const warnings: Warning[] = [];
    const { unknownActions } = this.rows;
    if (unknownActions.size > 0) {
      const total = [...unknownActions.values()].reduce((sum, count) => sum + count, 0);
      const names = [...unknownActions.keys()].slice(0, SHOWN_ACTIONS).map((name) => `'${name.slice(0, 40)}'`);
      warnings.push({
        code: 'unknown-actions',
        message: `${formatTimes(total, 'trace entry was', 'trace entries were')} ignored because weir does not know ${total === 1 ? 'its action' : 'their actions'}: ${names.join(', ')}`,
      });
    }
    if (this.hostProblem !== undefined)
      warnings.push({ code: 'host-memory', message: `pinned host memory was ignored: ${this.hostProblem}` });
    if (events.size === 0) {
      const remedy = hostMemory
        ? 'it was recorded with record_cuda=False; record without it'
        : 'to record one, call torch.cuda.memory._record_memory_history() before the work';
      warnings.push({
        code: 'no-history',
        message: `the snapshot has no history${hostMemory ? ' of GPU memory' : ''}, so answers cover only the moment it was taken; ${remedy}`,
      });
    }
    return warnings;
  }
}

function checkedDevice(device: number): number {
  if (device < MAX_DEVICES) return device;
  throw new InputError(`the snapshot has GPU ${device}, above the last possible one, ${MAX_DEVICES - 1}: the file is damaged`);
}

/** A copy of the rows in `ranges`, for a GPU whose entries are not contiguous in the file. */
function gathered(from: EventColumns, ranges: readonly Range[], memory: ColumnMemory | undefined): EventColumns {
  const rows = ranges.reduce((sum, range) => sum + range.to - range.from, 0);
  const store = new EventStore(rows, memory);
  for (const range of ranges) {
    for (let row = range.from; row < range.to; row++) {
      const copy = store.append(
        from.kind[row] as never,
        from.address[row]!,
        from.size[row]!,
        from.timeUs[row]!,
        from.stream[row]!,
        from.pool[row]!,
        from.stack[row]!,
        from.metadata[row]!,
      );
      const context = from.compileContext?.[row];
      if (context) store.setOptional(copy, 'compileContext', context);
    }
  }
  return store.view();
}
