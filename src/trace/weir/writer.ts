// Writes `.weir` files: record by record while a job runs, or a whole recording at once.
// It buffers only the events of one record, so memory stays bounded however long the recording is.
import { BLOCK_UNIT } from '../../abi/settings.ts';
import { roundUp } from '../../base/bytes.ts';
import { InputError } from '../../base/errors.ts';
import { assembleTrace } from '../assemble.ts';
import { numberToJson, settingsToJson } from '../settings-json.ts';
import { segmentHolding } from '../start-state.ts';
import { Symbols } from '../symbols.ts';
import type {
  Annotation,
  Block,
  EventColumns,
  HostMemory,
  OtherMemory,
  PoolId,
  RecordedLimits,
  Recording,
  Segment,
  SettingValue,
  Trace,
  Warning,
} from '../trace.ts';
import { checkedTime, encodeEvents } from './events.ts';
import {
  END_BYTES,
  EVENT_BYTES,
  EVERY_DEVICE,
  FRAME_BYTES,
  MAX_DEVICES,
  POOL_BYTES,
  RECORD_HEADER_BYTES,
  RecordType,
  SCOPE_BYTES,
  STACK_BYTES,
  STREAM_BYTES,
  StateFlag,
} from './format.ts';
import { fileHeader, openRecord, sealRecord, viewOf } from './framing.ts';
import { AddressCodec, setU64 } from './numbers.ts';
import { encodeState, stateBytes, statePartsOf } from './state.ts';

/** Largest record. A crash loses no more than this, and a reader needs no more at once. */
const RECORD_LIMIT = 1 << 20;
const ROWS_PER_RECORD: number = Math.floor(RECORD_LIMIT / EVENT_BYTES);
const ENTRIES_PER_JSON_RECORD = 4096;

const encoder = new TextEncoder();

interface Tables {
  streams: number;
  pools: number;
}

export class WeirWriter {
  /** Strings, frames and stacks that events refer to. New ones are written before the events that follow. */
  readonly symbols: Symbols;
  private readonly sink: (chunk: Uint8Array) => void;
  private readonly addresses: AddressCodec;
  private readonly devices = new Map<number, Tables>();
  private writtenStrings = 1;
  private writtenFrames = 0;
  private writtenStacks = 0;
  private records = 0;
  private eventCount = 0;

  /** Each chunk is one whole record, and the sink may keep it. `meta` names the tool that made the recording. */
  constructor(sink: (chunk: Uint8Array) => void, meta: Readonly<Record<string, unknown>>, symbols: Symbols = new Symbols()) {
    this.sink = sink;
    this.symbols = symbols;
    this.addresses = new AddressCodec(symbols.addresses);
    sink(fileHeader());
    this.writeBytes(RecordType.Meta, encoder.encode(JSON.stringify(meta)));
  }

  /** Declares a GPU. Must come before anything else about it. */
  device(device: number, limits: RecordedLimits): void {
    if (!(Number.isInteger(device) && device >= 0 && device < MAX_DEVICES))
      throw new InputError(`GPU ${device} cannot be stored: the last possible one is ${MAX_DEVICES - 1}`);
    if (this.devices.has(device)) throw new Error(`GPU ${device} is declared twice`);
    this.devices.set(device, { streams: 0, pools: 0 });
    this.writeJson(RecordType.Device, device, JSON.stringify(limits));
  }

  /** Adds streams to a GPU. Events refer to them by position. */
  streams(device: number, handles: readonly number[]): void {
    const tables = this.tablesOf(device);
    this.writeRows(RecordType.Streams, device, tables.streams, handles.length, STREAM_BYTES, (view, at, index) =>
      this.addresses.set(view, at, handles[index]!),
    );
    tables.streams += handles.length;
  }

  pools(device: number, ids: readonly PoolId[]): void {
    const tables = this.tablesOf(device);
    this.writeRows(RecordType.Pools, device, tables.pools, ids.length, POOL_BYTES, (view, at, index) => {
      setU64(view, at, ids[index]![0]);
      setU64(view, at + 8, ids[index]![1]);
    });
    tables.pools += ids.length;
  }

  /** Here and below, `EVERY_DEVICE` means all GPUs. */
  settings(device: number, settings: ReadonlyMap<string, SettingValue>): void {
    this.writeJson(RecordType.Settings, device, settingsToJson(settings));
  }

  annotations(device: number, annotations: readonly Annotation[]): void {
    const entries = annotations.map(
      ({ name, stage, device: on, timeUs }) => `[${JSON.stringify(name)},"${stage}",${on},${numberToJson(checkedTime(timeUs))}]`,
    );
    this.writeJsonEntries(RecordType.Annotations, device, entries);
  }

  warnings(device: number, warnings: readonly Warning[]): void {
    const entries = warnings.map(({ code, message }) => JSON.stringify([code, message]));
    this.writeJsonEntries(RecordType.Warnings, device, entries);
  }

  hostMemory(device: number, hostMemory: HostMemory): void {
    this.writeJson(RecordType.HostMemory, device, JSON.stringify(hostMemory));
  }

  otherMemory(device: number, otherMemory: OtherMemory): void {
    this.writeJson(RecordType.OtherMemory, device, JSON.stringify(otherMemory));
  }

  /** Writes the segments before the first event, or those after the events written so far. `whole start`: see `StateFlag`. */
  state(device: number, moment: 'start' | 'whole start' | 'end', segments: readonly Segment[]): void {
    this.writeSymbols();
    const parts = statePartsOf(segments, RECORD_LIMIT);
    parts.forEach((part, index) => {
      const flags =
        (moment === 'end' ? StateFlag.End : 0) |
        (moment === 'whole start' ? StateFlag.Whole : 0) |
        (index === 0 ? StateFlag.FirstPart : 0) |
        (index === parts.length - 1 ? StateFlag.LastPart : 0);
      const length = stateBytes(part);
      const record = openRecord(length);
      const view = viewOf(record);
      writeScope(view, part.length, device, flags);
      encodeState(view, RECORD_HEADER_BYTES + SCOPE_BYTES, part, this.addresses);
      this.emit(record, RecordType.State, length);
    });
  }

  /** Events `from` to `to` of the columns. */
  events(device: number, events: EventColumns, from = 0, to: number = events.count): void {
    this.tablesOf(device);
    this.writeSymbols();
    for (let first = from; first < to; first += ROWS_PER_RECORD) {
      const last = Math.min(to, first + ROWS_PER_RECORD);
      const length = (last - first) * EVENT_BYTES;
      const record = openRecord(length);
      encodeEvents(viewOf(record), RECORD_HEADER_BYTES, device, events, first, last, this.addresses);
      this.emit(record, RecordType.Events, length);
      this.eventCount += last - first;
    }
  }

  /**
   * Events as a recorder left them, `EVENT_BYTES` each, referring to what is declared here.
   * The caller must have checked them: a reader refuses a file with one invalid row.
   */
  rows(rows: Uint8Array): void {
    this.writeSymbols();
    for (let from = 0; from < rows.length; from += ROWS_PER_RECORD * EVENT_BYTES) {
      const part = rows.subarray(from, from + ROWS_PER_RECORD * EVENT_BYTES);
      this.writeBytes(RecordType.Events, part);
      this.eventCount += part.length / EVENT_BYTES;
    }
  }

  /** Marks the recording as complete. Nothing may follow. */
  end(): void {
    // Writes symbols that no event uses too: converting must not lose any.
    this.writeSymbols();
    const record = openRecord(END_BYTES);
    const view = viewOf(record);
    setU64(view, RECORD_HEADER_BYTES, this.eventCount);
    view.setUint32(RECORD_HEADER_BYTES + 8, this.records, true);
    this.emit(record, RecordType.End, END_BYTES);
  }

  private writeSymbols(): void {
    const { strings, frames, stacks } = this.symbols;
    this.writeStrings(strings);
    this.writeRows(RecordType.Frames, 0, this.writtenFrames, frames.count - this.writtenFrames, FRAME_BYTES, (view, at, index) => {
      const frame = this.writtenFrames + index;
      view.setUint32(at, frames.name(frame), true);
      view.setUint32(at + 4, frames.filename(frame), true);
      view.setInt32(at + 8, frames.line(frame), true);
    });
    this.writtenFrames = frames.count;
    this.writeRows(RecordType.Stacks, 0, this.writtenStacks, stacks.count - this.writtenStacks, STACK_BYTES, (view, at, index) => {
      const stack = this.writtenStacks + index;
      view.setInt32(at, stacks.parent(stack), true);
      view.setUint32(at + 4, stacks.frame(stack), true);
    });
    this.writtenStacks = stacks.count;
  }

  private writeStrings(strings: readonly string[]): void {
    while (this.writtenStrings < strings.length) {
      const texts: Uint8Array[] = [];
      let length = SCOPE_BYTES;
      for (let index = this.writtenStrings; index < strings.length && length < RECORD_LIMIT; index++) {
        const text = encoder.encode(strings[index]);
        texts.push(text);
        length += 4 + text.length;
      }
      const record = openRecord(length);
      const view = viewOf(record);
      writeScope(view, this.writtenStrings, 0, 0);
      let at = RECORD_HEADER_BYTES + SCOPE_BYTES;
      for (const text of texts) {
        view.setUint32(at, text.length, true);
        record.set(text, at + 4);
        at += 4 + text.length;
      }
      this.emit(record, RecordType.Strings, length);
      this.writtenStrings += texts.length;
    }
  }

  /** Writes the new rows of a table. `first` rows were written before. */
  private writeRows(
    type: RecordType,
    device: number,
    first: number,
    count: number,
    rowBytes: number,
    encode: (view: DataView, at: number, index: number) => void,
  ): void {
    const rowsPerRecord = Math.floor(RECORD_LIMIT / rowBytes);
    for (let from = 0; from < count; from += rowsPerRecord) {
      const to = Math.min(count, from + rowsPerRecord);
      const length = SCOPE_BYTES + (to - from) * rowBytes;
      const record = openRecord(length);
      const view = viewOf(record);
      writeScope(view, first + from, device, 0);
      for (let index = from, at = RECORD_HEADER_BYTES + SCOPE_BYTES; index < to; index++, at += rowBytes) encode(view, at, index);
      this.emit(record, type, length);
    }
  }

  private writeJsonEntries(type: RecordType, device: number, entries: readonly string[]): void {
    for (let from = 0; from < entries.length; from += ENTRIES_PER_JSON_RECORD) {
      this.writeJson(type, device, `[${entries.slice(from, from + ENTRIES_PER_JSON_RECORD).join(',')}]`);
    }
  }

  private writeJson(type: RecordType, device: number, json: string): void {
    if (device !== EVERY_DEVICE) this.tablesOf(device);
    const text = encoder.encode(json);
    const payload = new Uint8Array(SCOPE_BYTES + text.length);
    viewOf(payload).setUint16(4, device, true);
    payload.set(text, SCOPE_BYTES);
    this.writeBytes(type, payload);
  }

  private writeBytes(type: RecordType, payload: Uint8Array): void {
    const record = openRecord(payload.length);
    record.set(payload, RECORD_HEADER_BYTES);
    this.emit(record, type, payload.length);
  }

  private emit(record: Uint8Array, type: RecordType, length: number): void {
    sealRecord(record, type, length, this.records++);
    this.sink(record);
  }

  private tablesOf(device: number): Tables {
    const tables = this.devices.get(device);
    if (!tables) throw new Error(`GPU ${device} has not been declared`);
    return tables;
  }
}

/**
 * Writes a whole recording, but only what was recorded. Readers work out the rest from the events, so a better weir can
 * draw better conclusions.
 */
export function writeWeir(recording: Recording, sink: (chunk: Uint8Array) => void, meta: Readonly<Record<string, unknown>> = {}): void {
  const { traces } = recording;
  const symbols = traces[0]?.symbols ?? new Symbols();
  if (traces.some((trace) => trace.symbols !== symbols)) throw new Error('the traces of one recording share their symbols');
  const writer = new WeirWriter(sink, { tool: 'weir', source: recording.format, ...meta }, symbols);
  for (const trace of traces) {
    writer.device(trace.device, trace.limits);
    writer.streams(trace.device, trace.streams);
    writer.pools(trace.device, trace.pools);
  }
  eachOnceIfShared(
    traces,
    (trace) => trace.settings,
    (device, settings) => writer.settings(device, settings),
  );
  eachOnceIfShared(
    traces,
    (trace) => trace.annotations,
    (device, annotations) => writer.annotations(device, annotations),
  );
  const hostMemory = traces.find((trace) => trace.hostMemory)?.hostMemory;
  if (hostMemory) writer.hostMemory(EVERY_DEVICE, hostMemory);
  for (const trace of traces) {
    const again = assembleTrace({ ...trace, startSegments: undefined, startIsWhole: false, warnings: [] });
    const foundAgain = new Set(again.warnings.map(({ code }) => code));
    writer.warnings(
      trace.device,
      trace.warnings.filter(({ code }) => !foundAgain.has(code)),
    );
    if (trace.otherMemory) writer.otherMemory(trace.device, trace.otherMemory);
    if (trace.startIsWhole) writer.state(trace.device, 'whole start', startWithLiveBlocks(trace));
    else if (!startIsFoundAgain(trace, again)) writer.state(trace.device, 'start', startWithLiveBlocks(trace));
    writer.events(trace.device, trace.events);
    if (trace.endSegments) writer.state(trace.device, 'end', trace.endSegments);
  }
  writer.end();
}

/** Writes the scope that begins a payload; see `SCOPE_BYTES`. */
function writeScope(view: DataView, first: number, device: number, flags: number): void {
  view.setUint32(RECORD_HEADER_BYTES, first, true);
  view.setUint16(RECORD_HEADER_BYTES + 4, device, true);
  view.setUint16(RECORD_HEADER_BYTES + 6, flags, true);
}

/** Writes values that all GPUs of a snapshot share once, instead of once per GPU. */
function eachOnceIfShared<Value>(
  traces: readonly Trace[],
  shared: (trace: Trace) => Value,
  write: (device: number, value: Value) => void,
): void {
  const first = traces[0];
  if (first && traces.every((trace) => shared(trace) === shared(first))) write(EVERY_DEVICE, shared(first));
  else for (const trace of traces) write(trace.device, shared(trace));
}

/** Whether a reader would rebuild the same start. If not, the start was recorded and must be written. */
function startIsFoundAgain(trace: Trace, again: Trace): boolean {
  return (
    trace.endSegments !== undefined &&
    again.allocations.liveAtStart === trace.allocations.liveAtStart &&
    again.startSegments.length === trace.startSegments.length &&
    again.startSegments.every((segment, index) => {
      const known = trace.startSegments[index]!;
      return (
        segment.address === known.address && segment.size === known.size && segment.stream === known.stream && segment.pool === known.pool
      );
    })
  );
}

/** In a trace, blocks live at the start are allocations. In a file they are blocks of the start segments. */
function startWithLiveBlocks({ startSegments, allocations }: Trace): Segment[] {
  const blocks: Block[][] = startSegments.map(() => []);
  for (let index = 0; index < allocations.liveAtStart; index++) {
    const address = allocations.address[index]!;
    const requested = allocations.requested[index]!;
    const state = allocations.freeRequestedEvent[index]! < 0 && allocations.freeCompletedEvent[index]! >= 0 ? 'pending' : 'live';
    const size = Math.min(roundUp(requested, BLOCK_UNIT), Number.MAX_SAFE_INTEGER);
    const stack = allocations.startStack?.[index] ?? -1;
    blocks[segmentHolding(startSegments, address)]?.push({ address, size, requested, state, stack });
  }
  return startSegments.map((segment, index) => ({ ...segment, blocks: blocks[index]! }));
}
