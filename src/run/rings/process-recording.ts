// Records one process: reads its ring and writes a .weir file.
// Everything that rows refer to (GPUs, streams, pools, strings) is declared in the file first.

import { RING_DEVICES } from '../../abi/ring.ts';
import { VERSION_SETTING } from '../../allocator/pytorch/versions.ts';
import { formatTimes } from '../../base/counts.ts';
import { InputError } from '../../base/errors.ts';
import { settingsFromJson } from '../../trace/settings-json.ts';
import { NO_STACK, type Symbols } from '../../trace/symbols.ts';
import type { HostMemory, OtherMemory, PoolId, RecordedLimits, SettingValue } from '../../trace/trace.ts';
import { EVENT_BYTES, EVERY_DEVICE } from '../../trace/weir/format.ts';
import { WeirWriter } from '../../trace/weir/writer.ts';
import { type Ring, RingDamage, type RingOwner } from './ring.ts';
import type { Gauges } from './ring-layout.ts';
import { RowChecker, type RowCounts } from './row-check.ts';
import type { TraceFile } from './trace-file.ts';

/** Reads of rows in one go, so that one busy process does not hold up the others. */
const TAKES_AT_ONCE = 16;

export interface RecordingOptions {
  /** Written into the file: tool, host, command. */
  readonly meta: Readonly<Record<string, unknown>>;
  /** Allocator settings by PyTorch's names, as far as the environment has them. */
  readonly settings: ReadonlyMap<string, SettingValue>;
  /** Most events to write into the file. */
  readonly mostEvents: number;
  /** Number of events that a what-if replays. */
  readonly whatIfEvents: number;
  /** What is written at the end: memory that is not PyTorch's, and pinned host memory. */
  readonly otherMemory?: ((recording: ProcessRecording, gpu: number) => OtherMemory | undefined) | undefined;
  readonly hostMemory?: ((recording: ProcessRecording) => HostMemory | undefined) | undefined;
  /** Called with the valid rows before they are written. */
  readonly onRows?: ((recording: ProcessRecording, rows: Buffer) => void) | undefined;
}

export class ProcessRecording {
  readonly owner: RingOwner;
  readonly file: TraceFile;
  /** Written into the file: tool, host, command, process. */
  readonly meta: Readonly<Record<string, unknown>>;
  events = 0;
  /** Number of events in the file, and its length when it held `whatIfEvents`. */
  writtenEvents = 0;
  whatIfBytes = 0;
  dropped = 0;
  gaps = 0;
  /** Requests whose call stack found no room. */
  stacksLost = 0;
  isFinished = false;
  /** The defect of the ring, if any. */
  damage: string | undefined;
  gauges: ReadonlyMap<number, Gauges> = new Map();
  readonly counts: RowCounts = { damaged: 0, operators: 0, settings: [] };
  private readonly ring: Ring;
  private readonly options: RecordingOptions;
  private readonly writer: WeirWriter;
  private readonly checker = new RowChecker();
  private readonly declared = {
    strings: [0],
    streams: new Int32Array(RING_DEVICES),
    pools: new Int32Array(RING_DEVICES),
    stackOf: (stack: number): number => this.ring.stacks?.numberIn(this.writer.symbols, stack) ?? NO_STACK,
  };
  private readonly streams: bigint[][] = [];
  private readonly pools: PoolId[][] = [];
  private readonly defaultPools: number[] = [];
  private settings: ReadonlyMap<string, SettingValue>;
  private hasToldGap = false;

  constructor(ring: Ring, file: TraceFile, options: RecordingOptions) {
    this.ring = ring;
    this.owner = ring.owner;
    this.file = file;
    this.options = options;
    this.meta = {
      ...options.meta,
      pid: this.owner.pid,
      rank: this.owner.rank,
      localRank: this.owner.localRank,
      worldSize: this.owner.worldSize,
      torch: this.owner.torchVersion,
      allocator: this.owner.allocator,
    };
    this.writer = new WeirWriter((record) => file.write(record), this.meta);
    this.settings = new Map<string, SettingValue>([
      ...options.settings,
      ['allocator', this.owner.allocator],
      [VERSION_SETTING, this.owner.torchVersion],
    ]);
    if (this.owner.allocator === 'expandable') this.settings = new Map([...this.settings, ['expandable_segments', true]]);
    this.writer.settings(EVERY_DEVICE, this.settings);
  }

  get inode(): number {
    return this.ring.inode;
  }

  /** Rows that were waiting at the last refresh. */
  get waiting(): number {
    return this.ring.waiting;
  }

  get isClosed(): boolean {
    return this.ring.isClosed;
  }

  /** Reads the waiting rows, or a good part of them. Returns whether more are waiting. */
  drain(): boolean {
    if (this.isFinished) return false;
    try {
      this.ring.refresh();
      this.noteLevels();
      this.declare();
      for (let take = 0; take < TAKES_AT_ONCE && this.ring.waiting > 0; take++) this.store(this.ring.take());
      this.tellGaps();
      return this.ring.waiting > 0;
    } catch (error) {
      const isExpected = error instanceof RingDamage || error instanceof InputError || (error instanceof Error && 'syscall' in error);
      if (!isExpected) throw error;
      this.damage = error.message;
      this.finish();
      return false;
    }
  }

  /** Closes the recording: the process has ended, or its ring is damaged. */
  finish(): void {
    if (this.isFinished) return;
    this.isFinished = true;
    if (this.damage !== undefined)
      this.warn('damaged-ring', `the ring of process ${this.owner.pid} was damaged (${this.damage}); later events are missing`);
    if (this.dropped > 0) {
      const message = `${formatTimes(this.dropped, 'event is', 'events are')} missing in ${formatTimes(this.gaps, 'place', 'places')}, because events came faster than they could be written`;
      this.warn('dropped-events', message);
    }
    if (this.stacksLost > 0)
      this.warn(
        'lost-stacks',
        `${formatTimes(this.stacksLost, 'request has', 'requests have')} no call stack, because there was no room for more`,
      );
    if (this.counts.damaged > 0)
      this.warn('damaged-events', `${formatTimes(this.counts.damaged, 'invalid event was', 'invalid events were')} ignored`);
    if (this.isCut) {
      const message = `recording stopped after ${this.writtenEvents.toLocaleString('en-US')} of ${this.events.toLocaleString('en-US')} events`;
      this.warn('cut', message);
    }
    this.writeOtherMemory();
    this.writer.end();
    this.noteWhatIf();
    this.file.close();
    this.ring.close();
  }

  /** Stream handles of a GPU, by their numbers in rows. */
  streamsOf(device: number): readonly bigint[] {
    return this.streams[device] ?? [];
  }

  /** Ids of pools of a GPU, by their numbers in rows. */
  poolsOf(device: number): readonly PoolId[] {
    return this.pools[device] ?? [];
  }

  /** What rows refer to, once they are valid. */
  get symbols(): Symbols {
    return this.writer.symbols;
  }

  /** The allocator's settings, as far as they are known. */
  get allSettings(): ReadonlyMap<string, SettingValue> {
    return this.settings;
  }

  /** Number of the default pool in rows. */
  defaultPool(device: number): number {
    return this.defaultPools[device] ?? -1;
  }

  /** The text that the detail of a valid row refers to. */
  textOf(detail: number): string {
    return this.writer.symbols.strings[detail] ?? '';
  }

  /** Tells the process that plan file `generation` is ready. Returns false if it can no longer be told. */
  announcePlan(generation: number): boolean {
    if (this.isFinished) return false;
    try {
      this.ring.announcePlan(generation);
      return true;
    } catch {
      return false;
    }
  }

  /** Whether events are missing from the file. */
  get isCut(): boolean {
    return this.writtenEvents < this.events - this.counts.damaged;
  }

  private noteLevels(): void {
    this.dropped = this.ring.dropped;
    this.gaps = this.ring.gaps;
    this.stacksLost = this.ring.stacksLost;
    this.gauges = this.ring.gauges;
  }

  private declare(): void {
    const { declared } = this;
    this.ring.stacks?.take();
    for (const text of this.ring.newStrings()) declared.strings.push(this.writer.symbols.internString(text));
    for (let device = 0; device < RING_DEVICES; device++) {
      const streams = this.ring.newStreams(device);
      const pools = this.ring.newPools(device);
      if (streams.length + pools.length === 0) continue;
      if (declared.streams[device] === 0 && declared.pools[device] === 0) this.writer.device(device, limitsOf(this.gauges.get(device)));
      this.writer.streams(
        device,
        streams.map((handle) => this.writer.symbols.addresses.encode(handle)),
      );
      this.writer.pools(device, pools);
      this.streams[device] = [...(this.streams[device] ?? []), ...streams];
      this.pools[device] = [...(this.pools[device] ?? []), ...pools];
      const first = pools.findIndex(([high, low]) => high === 0 && low === 0);
      if (first >= 0) this.defaultPools[device] ??= declared.pools[device]! + first;
      declared.streams[device]! += streams.length;
      declared.pools[device]! += pools.length;
    }
  }

  private store(rows: Buffer): void {
    this.events += rows.length / EVENT_BYTES;
    const bytes = this.checker.check(rows, this.declared, this.counts);
    for (const { text } of this.counts.settings.splice(0)) this.takeSettings(this.writer.symbols.strings[text] ?? '');
    this.options.onRows?.(this, rows.subarray(0, bytes));
    const room = Math.max(0, this.options.mostEvents - this.writtenEvents);
    const kept = Math.min(bytes / EVENT_BYTES, room);
    if (kept === 0 || !this.file.isOpen) return;
    this.writer.rows(rows.subarray(0, kept * EVENT_BYTES));
    if (!this.file.isOpen) return;
    this.writtenEvents += kept;
    this.noteWhatIf();
  }

  /**
   * Notes the length of the file for the what-if. A record refers only to earlier ones, so the beginning of a file is a
   * valid file.
   */
  private noteWhatIf(): void {
    if (this.whatIfBytes === 0 || this.writtenEvents <= this.options.whatIfEvents) this.whatIfBytes = this.file.bytes;
  }

  /** A process may report its settings as JSON. Any other text is PyTorch's configuration string. */
  private takeSettings(text: string): void {
    let said: ReadonlyMap<string, SettingValue>;
    try {
      said = settingsFromJson(JSON.parse(text));
    } catch {
      said = new Map([['PYTORCH_CUDA_ALLOC_CONF', text]]);
    }
    this.settings = new Map([...this.settings, ...said]);
    this.writer.settings(EVERY_DEVICE, this.settings);
  }

  private writeOtherMemory(): void {
    const { otherMemory, hostMemory } = this.options;
    for (const gpu of this.gauges.keys()) {
      const other = this.streamsOf(gpu).length > 0 ? otherMemory?.(this, gpu) : undefined;
      if (other) this.writer.otherMemory(gpu, other);
    }
    const host = hostMemory?.(this);
    if (host) this.writer.hostMemory(EVERY_DEVICE, host);
  }

  private tellGaps(): void {
    if (this.dropped === 0 || this.hasToldGap) return;
    this.hasToldGap = true;
    this.warn('gap', `events are missing from about event ${this.events} on, because they came faster than they could be written`);
  }

  private warn(code: string, message: string): void {
    this.writer.warnings(EVERY_DEVICE, [{ code, message }]);
  }
}

/** Stores the limit as PyTorch does: a share of the GPU that rounds down to exactly these bytes. */
export function limitsOf(gauges: Gauges | undefined): RecordedLimits {
  if (!gauges || gauges.total <= 0 || !Number.isSafeInteger(gauges.total)) return {};
  const { total, limit } = gauges;
  if (limit <= 0 || limit >= total) return { deviceBytes: total };
  const share = limit / total;
  return { deviceBytes: total, memoryFraction: Math.floor(share * total) === limit ? share : (limit + 0.5) / total };
}
