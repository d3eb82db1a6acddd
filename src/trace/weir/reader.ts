// Reads `.weir` files up to where they are intact, however they end. Each record is checked before it is decoded.
// No number in the file is trusted before the bytes it speaks of are seen.
import type { ColumnMemory } from '../../base/columns.ts';
import { formatTimes } from '../../base/counts.ts';
import { InputError } from '../../base/errors.ts';
import { assembleTrace } from '../assemble.ts';
import { PIECE_BYTES } from '../byte-window.ts';
import { EventStore } from '../event-store.ts';
import { hostMemoryFrom } from '../host-memory.ts';
import { otherMemoryFrom } from '../other-memory.ts';
import { settingsFromJson } from '../settings-json.ts';
import { NO_STACK } from '../symbols.ts';
import type { Annotation, HostMemory, Recording, Segment, SettingValue, Trace, Warning } from '../trace.ts';
import { Worth } from '../worth.ts';
import { decodeEvents } from './events.ts';
import {
  ANNOTATION_STAGES,
  END_BYTES,
  EVENT_BYTES,
  EVERY_DEVICE,
  FRAME_BYTES,
  MAX_DEVICES,
  POOL_BYTES,
  RecordType,
  SCOPE_BYTES,
  STACK_BYTES,
  STREAM_BYTES,
  StateFlag,
} from './format.ts';
import { MAX_RECORD_BYTES, type RecordHead, RecordWalk, type WholePart } from './framing.ts';
import { getU64 } from './numbers.ts';
import { decodeState } from './state.ts';
import { type DeviceTables, FileTables } from './tables.ts';

/** JSON becomes objects that take many times its size. Recorders write far less in one record. */
const MAX_JSON_BYTES = 2 ** 24;
const MAX_JSON_VALUES = 2 ** 18;
/** A larger file makes its tables grow. */
const MAX_EXPECTED_EVENTS = 2 ** 23;

// Paths may hold any bytes: invalid UTF-8 becomes U+FFFD, and a leading U+FEFF stays.
const decoder = new TextDecoder('utf-8', { ignoreBOM: true });

/** Reads a whole file. */
export function readWeir(bytes: Uint8Array, options: { readonly onProgress?: ((fraction: number) => void) | undefined } = {}): Recording {
  const reader = new WeirReader(bytes.length);
  for (let from = 0; from < bytes.length; from += PIECE_BYTES) {
    reader.push(bytes.subarray(from, from + PIECE_BYTES));
    options.onProgress?.(Math.min(1, (from + PIECE_BYTES) / bytes.length));
  }
  return reader.finish();
}

/** Reads a file that comes in pieces. */
export class WeirReader {
  private readonly file: WeirFile;
  private readonly walk: RecordWalk;
  private total = 0;

  /** `expectedBytes` is a guess at the size of the file, for the first size of the tables. */
  constructor(expectedBytes: number, memory?: ColumnMemory) {
    this.file = new WeirFile(Math.min(MAX_EXPECTED_EVENTS, Math.ceil(expectedBytes / EVENT_BYTES)), memory);
    this.walk = new RecordWalk((head, bytes, view) => this.file.read(head, bytes, view));
  }

  /** Whether the rest of the file is of no interest. */
  get isDone(): boolean {
    return this.walk.isDone;
  }

  push(piece: Uint8Array): void {
    this.total += piece.length;
    this.walk.push(piece);
    this.file.check(this.total, this.walk.pending);
  }

  finish(): Recording {
    const { file } = this;
    const whole = this.walk.finish();
    const warnings = [...file.warnings, ...endingOf(whole, this.isDone, file.claimedEvents)];
    if (file.tables.devices.size === 0 && warnings.length > 0) {
      throw new InputError(`the .weir file holds no recording: ${warnings[0]!.message}`);
    }
    return { format: 'weir', traces: [...file.tables.devices.values()].map((device) => file.assemble(device, warnings)) };
  }
}

class WeirFile {
  readonly tables: FileTables = new FileTables();
  /** Number of events according to the End record, if there is one. */
  claimedEvents: number | undefined;
  private readonly worth = new Worth();
  private readonly expectedEvents: number;
  private readonly memory: ColumnMemory | undefined;
  /** The piece of the file that the record lies in. */
  private bytes: Uint8Array = new Uint8Array(0);
  private view: DataView = new DataView(new ArrayBuffer(0));
  private readonly unfinishedStates = new Map<string, Segment[]>();
  private commonSettings: ReadonlyMap<string, SettingValue> = new Map();
  private readonly commonAnnotations: Annotation[] = [];
  private hostMemory: HostMemory | undefined;
  private readonly commonWarnings: Warning[] = [];
  private unknownEvents = 0;
  /** Bytes of memory for streams, pools, segments, blocks, annotations and warnings. */
  private heldByObjects = 0;

  constructor(expectedEvents: number, memory: ColumnMemory | undefined) {
    this.expectedEvents = expectedEvents;
    this.memory = memory;
  }

  get warnings(): Warning[] {
    if (this.unknownEvents === 0) return [];
    const message = `${formatTimes(this.unknownEvents, 'event was', 'events were')} ignored because this weir does not know ${this.unknownEvents === 1 ? 'its kind' : 'their kinds'}; a newer weir reads ${this.unknownEvents === 1 ? 'it' : 'them'}`;
    return [{ code: 'unknown-events', message }];
  }

  read(head: RecordHead, bytes: Uint8Array, view: DataView): void {
    this.bytes = bytes;
    this.view = view;
    this.tables.record = head.offset;
    this.readRecord(head);
  }

  /** Refuses a file that takes more than it gives. */
  check(read: number, pending: number): void {
    const { strings, frames, stacks } = this.tables;
    const held = strings.length * 110 + this.worth.textBytes * 2 + (frames.length + stacks.length) * 36 + this.heldByObjects;
    // A record that is not complete may be anything, and there is only one of it.
    this.worth.check(read - pending, held);
  }

  assemble(device: DeviceTables, fileWarnings: readonly Warning[]): Trace {
    const trace = assembleTrace({
      device: device.device,
      events: device.events.view(),
      startSegments: device.startSegments,
      startIsWhole: device.startIsWhole,
      endSegments: device.eventsBeforeEnd === device.events.count ? device.endSegments : undefined,
      streams: device.streams,
      pools: device.pools,
      symbols: this.tables.symbols,
      settings: device.settings ?? this.commonSettings,
      limits: device.limits,
      annotations: device.annotations.length > 0 ? [...this.commonAnnotations, ...device.annotations] : this.commonAnnotations,
      hostMemory: this.hostMemory,
      otherMemory: device.otherMemory,
      warnings: [],
      memory: this.memory,
    });
    // Warnings found in the events replace those written in the file. The others are kept.
    const foundAgain = new Set(trace.warnings.map(({ code }) => code));
    const carried = [...this.commonWarnings, ...device.warnings].filter(({ code }) => !foundAgain.has(code));
    return { ...trace, warnings: [...carried, ...fileWarnings, ...trace.warnings] };
  }

  private readRecord(head: RecordHead): void {
    const { view, tables } = this;
    switch (head.type) {
      case RecordType.Device:
        this.readDevice(head);
        break;
      case RecordType.Strings:
        this.readStrings(head);
        break;
      case RecordType.Frames:
        this.readFrames(head);
        break;
      case RecordType.Stacks:
        this.readStacks(head);
        break;
      case RecordType.Streams: {
        const { streams } = this.deviceOf(head);
        this.heldByObjects += head.length;
        this.eachRow(head, STREAM_BYTES, streams.length, (at) => streams.push(tables.addresses.get(view, at)));
        break;
      }
      case RecordType.Pools: {
        const { pools } = this.deviceOf(head);
        this.heldByObjects += head.length * 5;
        this.eachRow(head, POOL_BYTES, pools.length, (at) => pools.push([getU64(view, at), getU64(view, at + 8)]));
        break;
      }
      case RecordType.Settings: {
        const settings = settingsFromJson(this.jsonOf(head));
        if (this.scopeOf(head).device === EVERY_DEVICE) this.commonSettings = settings;
        else this.deviceOf(head).settings = settings;
        break;
      }
      case RecordType.Annotations:
        this.readAnnotations(head);
        break;
      case RecordType.Warnings:
        this.readWarnings(head);
        break;
      case RecordType.HostMemory:
        this.hostMemory = hostMemoryFrom(this.jsonOf(head)) ?? this.tables.refuse('does not hold the figures of pinned host memory');
        break;
      case RecordType.OtherMemory:
        this.deviceOf(head).otherMemory =
          otherMemoryFrom(this.jsonOf(head)) ?? this.tables.refuse("does not hold the figures of memory that is not PyTorch's");
        break;
      case RecordType.State:
        this.readState(head);
        break;
      case RecordType.Events:
        if (head.length % EVENT_BYTES !== 0) tables.refuse(`holds ${head.length} bytes, which is not a whole number of events`);
        this.readEvents(head);
        break;
      case RecordType.End:
        if (head.length >= END_BYTES) this.claimedEvents = getU64(view, head.payload);
        break;
    }
  }

  private readEvents({ payload, length }: RecordHead): void {
    const rows = length / EVENT_BYTES;
    const unknown = decodeEvents(this.view, payload, rows, this.tables);
    this.unknownEvents += unknown;
    this.worth.rows += rows - unknown;
  }

  private readDevice(head: RecordHead): void {
    const { device } = this.scopeOf(head);
    if (device >= MAX_DEVICES) this.tables.refuse(`declares GPU ${device}, above the last possible one, ${MAX_DEVICES - 1}`);
    if (this.tables.devices.has(device)) this.tables.refuse(`declares GPU ${device} a second time`);
    const { deviceBytes, memoryFraction } = (this.jsonOf(head) ?? {}) as Record<string, unknown>;
    this.tables.devices.set(device, {
      device,
      // Most files are of one GPU.
      events: new EventStore(this.tables.devices.size === 0 ? this.expectedEvents : undefined, this.memory),
      streams: [],
      pools: [],
      limits: {
        ...(isQuantity(deviceBytes) && { deviceBytes }),
        ...(isQuantity(memoryFraction) && { memoryFraction }),
      },
      settings: undefined,
      annotations: [],
      warnings: [],
      startSegments: undefined,
      startIsWhole: false,
      otherMemory: undefined,
      endSegments: undefined,
      eventsBeforeEnd: 0,
    });
  }

  private readStrings(head: RecordHead): void {
    const { view, tables } = this;
    const end = head.payload + head.length;
    this.checkFirst(head, tables.strings.length);
    for (let at = head.payload + SCOPE_BYTES; at < end; ) {
      const from = at + 4;
      const to = from <= end ? from + view.getUint32(at, true) : end + 1;
      if (to > end) tables.refuse('is too short for its strings');
      tables.strings.push(tables.symbols.internString(decoder.decode(this.bytes.subarray(from, to))));
      this.worth.texts++;
      this.worth.textBytes += to - from;
      at = to;
    }
  }

  private readFrames(head: RecordHead): void {
    const { view, tables } = this;
    this.worth.frames += head.length / FRAME_BYTES;
    this.eachRow(head, FRAME_BYTES, tables.frames.length, (at) => {
      const name = tables.stringAt(view.getUint32(at, true));
      const filename = tables.stringAt(view.getUint32(at + 4, true));
      tables.frames.push(tables.symbols.frames.intern(name, filename, view.getInt32(at + 8, true)));
    });
  }

  private readStacks(head: RecordHead): void {
    const { view, tables } = this;
    this.worth.stackItems += head.length / STACK_BYTES;
    this.eachRow(head, STACK_BYTES, tables.stacks.length, (at) => {
      const parent = view.getInt32(at, true);
      // A parent must have been read before, so stacks cannot form a cycle.
      const resolved = parent === NO_STACK ? NO_STACK : tables.stackAt(parent);
      tables.stacks.push(tables.symbols.stacks.push(resolved, tables.frameAt(view.getUint32(at + 4, true))));
    });
  }

  private readAnnotations(head: RecordHead): void {
    const { device } = this.scopeOf(head);
    const into = device === EVERY_DEVICE ? this.commonAnnotations : this.deviceOf(head).annotations;
    for (const entry of this.entriesOf(head)) {
      const [name, stage, on, timeUs] = entry;
      const known = ANNOTATION_STAGES.find((candidate) => candidate === stage);
      if (typeof name !== 'string' || !known || typeof on !== 'number' || typeof timeUs !== 'number') {
        this.tables.refuse('holds an annotation that is not [name, stage, device, microseconds]');
      }
      into.push({ name, stage: known, device: on, timeUs });
      this.worth.rows++;
      this.heldByObjects += 120 + name.length;
    }
  }

  private readWarnings(head: RecordHead): void {
    const { device } = this.scopeOf(head);
    const into = device === EVERY_DEVICE ? this.commonWarnings : this.deviceOf(head).warnings;
    for (const [code, message] of this.entriesOf(head)) {
      if (typeof code !== 'string' || typeof message !== 'string') this.tables.refuse('holds a warning that is not [code, message]');
      into.push({ code, message });
      this.heldByObjects += 150 + code.length + message.length;
    }
  }

  /** Gathers the parts of a state. The state is used once its last part is read. */
  private readState(head: RecordHead): void {
    const { first: count, flags } = this.scopeOf(head);
    const device = this.deviceOf(head);
    const isEnd = (flags & StateFlag.End) !== 0;
    const key = `${device.device} ${isEnd}`;
    const before = flags & StateFlag.FirstPart ? [] : this.unfinishedStates.get(key);
    if (!before) this.tables.refuse('continues a state that no earlier record began');
    const from = head.payload + SCOPE_BYTES;
    for (const segment of decodeState(this.view, from, head.payload + head.length, count, device, this.tables)) {
      before.push(segment);
      this.worth.rows += 1 + segment.blocks.length;
      this.heldByObjects += 200 + segment.blocks.length * 130;
    }
    if (!(flags & StateFlag.LastPart)) {
      this.unfinishedStates.set(key, before);
      return;
    }
    this.unfinishedStates.delete(key);
    if (isEnd) {
      device.endSegments = before;
      device.eventsBeforeEnd = device.events.count;
    } else {
      device.startSegments = before;
      device.startIsWhole = (flags & StateFlag.Whole) !== 0;
    }
  }

  private scopeOf({ payload, length }: RecordHead): { first: number; device: number; flags: number } {
    if (length < SCOPE_BYTES) this.tables.refuse('is too short');
    const { view } = this;
    return { first: view.getUint32(payload, true), device: view.getUint16(payload + 4, true), flags: view.getUint16(payload + 6, true) };
  }

  private deviceOf(head: RecordHead): DeviceTables {
    return this.tables.deviceAt(this.scopeOf(head).device);
  }

  private checkFirst(head: RecordHead, count: number): void {
    const { first } = this.scopeOf(head);
    if (first !== count) this.tables.refuse(`continues a table at entry ${first}, but the table has ${count} entries`);
  }

  private eachRow(head: RecordHead, rowBytes: number, count: number, decode: (at: number) => void): void {
    this.checkFirst(head, count);
    const end = head.payload + head.length;
    const from = head.payload + SCOPE_BYTES;
    if ((end - from) % rowBytes !== 0) this.tables.refuse('does not hold a whole number of entries');
    for (let at = from; at < end; at += rowBytes) decode(at);
  }

  private jsonOf(head: RecordHead): unknown {
    this.scopeOf(head);
    const json = this.bytes.subarray(head.payload + SCOPE_BYTES, head.payload + head.length);
    if (json.length > MAX_JSON_BYTES || valuesIn(json) > MAX_JSON_VALUES) this.tables.refuse('holds more JSON than any recorder writes');
    const text = decoder.decode(json);
    try {
      return JSON.parse(text);
    } catch {
      return this.tables.refuse('is not valid JSON');
    }
  }

  private entriesOf(head: RecordHead): unknown[][] {
    const entries = this.jsonOf(head);
    if (!Array.isArray(entries) || !entries.every(Array.isArray)) this.tables.refuse('is not a list of lists');
    return entries;
  }
}

/** Warnings that follow from how the file ends. If the file `goesOn`, its end was not read. */
function endingOf({ stop, end, events, total }: WholePart, goesOn: boolean, claimedEvents: number | undefined): Warning[] {
  const fileBytes = goesOn ? `at least ${total}` : total;
  const read = `the ${events} events before that were read`;
  switch (stop) {
    case 'truncated':
      return [{ code: 'truncated', message: `the file ends within a record, at byte ${end} of ${fileBytes}: ${read}` }];
    case 'corrupt':
      return [{ code: 'corrupt', message: `the file is damaged at byte ${end} of ${fileBytes}: ${read}, the rest was ignored` }];
    case 'oversized': {
      const message = `the record at byte ${end} of ${fileBytes} is longer than ${MAX_RECORD_BYTES} bytes: ${read}, the rest was ignored`;
      return [{ code: 'corrupt', message }];
    }
    case 'unfinished':
      return [
        {
          code: 'unfinished',
          message: `the recording has no end, as when the job is killed: all ${events} events up to then were read (${fileBytes} bytes)`,
        },
      ];
    case 'end':
      if (claimedEvents !== events) {
        return [{ code: 'corrupt', message: `the file declares ${claimedEvents} events but holds ${events}` }];
      }
      if (end < total) {
        return [
          { code: 'trailing', message: `${goesOn ? 'at least ' : ''}${total - end} bytes after the end of the recording were ignored` },
        ];
      }
      return [];
  }
}

function isQuantity(value: unknown): value is number {
  return typeof value === 'number' && value >= 0;
}

/** An upper bound of the number of values in a JSON text. */
function valuesIn(json: Uint8Array): number {
  let values = 1;
  for (const byte of json) if (byte === 0x2c || byte === 0x5b || byte === 0x7b) values++;
  return values;
}
