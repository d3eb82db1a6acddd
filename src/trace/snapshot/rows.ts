// Recognises the dicts of a snapshot by their keys and turns each into a row as soon as it is complete.
// Decoders call it with ranges of their value stack. Dicts that are not rows go to the containers.
import type { ColumnMemory } from '../../base/columns.ts';
import { InputError } from '../../base/errors.ts';
import { EventStore } from '../event-store.ts';
import { NO_STACK, Symbols } from '../symbols.ts';
import { type Annotation, type Block, type BlockState, EventKind } from '../trace.ts';
import { Worth } from '../worth.ts';
import { Containers, NOT_FROZEN } from './containers.ts';
import { DictFields } from './dict-fields.ts';
import { ForwardFrames } from './forward-frames.ts';
import { Key, KIND_OF_ACTION, KNOWN_NAMES, Word } from './names.ts';
import { PoolTable } from './pools.ts';
import { StackBuilder } from './stacks.ts';
import { StringTable } from './strings.ts';
import { describeTag, Tag, ValueStack } from './values.ts';

/** Blocks and segments become objects. A file with more than any GPU has is refused before memory runs out. */
const MAX_OBJECTS = 2 ** 22;
/** Names kept of unknown actions. The message shows fewer. */
const MAX_UNKNOWN_ACTIONS = 64;
/** Rows that are in no list. Those of lists that are not complete come on top. */
const MAX_LOOSE_ROWS = 2 ** 20;
/** A list of more texts is no call stack, and its content is dropped. */
const MAX_LINES = 256;
const INT32_MAX = 2 ** 31 - 1;

const bit = (key: number): number => 1 << key;
const EVENT_KEYS = bit(Key.action);
const FRAME_KEYS = bit(Key.name) | bit(Key.filename) | bit(Key.line);
const SEGMENT_KEYS = bit(Key.blocks) | bit(Key.total_size);
const BLOCK_KEYS = bit(Key.state) | bit(Key.size);
const HISTORY_KEYS = bit(Key.addr) | bit(Key.real_size);
const ANNOTATION_KEYS = bit(Key.stage) | bit(Key.name);

/** A segment as found. Its blocks are still an undecoded value. */
export interface RawSegment {
  readonly device: number;
  readonly address: number;
  readonly size: number;
  readonly stream: number;
  readonly pool: number;
  readonly small: boolean;
  readonly expandable: boolean;
  readonly stack: number;
  readonly blocksTag: number;
  readonly blocksValue: number;
}

/** Address of a block whose dict has none. It follows from the blocks before it. */
export const NO_ADDRESS = -1;

export class Rows {
  readonly stack: ValueStack = new ValueStack();
  readonly symbols: Symbols = new Symbols();
  readonly worth: Worth = new Worth();
  readonly strings: StringTable;
  readonly containers: Containers = new Containers();
  readonly events: EventStore;
  readonly segments: RawSegment[] = [];
  /** Also holds the `history` entries of old files, as blocks that have only a request and a stack. */
  readonly blocks: Block[] = [];
  readonly annotations: Annotation[] = [];
  readonly bigints: bigint[] = [];
  readonly streams: number[] = [];
  readonly pools: PoolTable = new PoolTable();
  /** Number of entries by unknown action. */
  readonly unknownActions: Map<string, number> = new Map();

  private readonly streamIndex = new Map<number, number>();
  private lastStream = -1;
  private lastStreamIndex = 0;
  private readonly stackBuilder: StackBuilder = new StackBuilder(this.symbols.stacks);
  private readonly forward: ForwardFrames = new ForwardFrames(this.symbols);
  private readonly dict: DictFields;
  private readonly textOf = (id: number): string => this.strings.text(id);

  constructor(expectedEvents: number, memory?: ColumnMemory) {
    this.events = new EventStore(expectedEvents, memory);
    this.strings = new StringTable(KNOWN_NAMES, this.symbols, this.worth);
    this.dict = new DictFields(this.symbols, this.strings, this.pools, this.bigints);
  }

  /** Refuses a file that takes more than it gives. `held` is what its decoder holds, `open` its unfinished values. */
  check(read: number, held: number, open: number): void {
    const { stack, containers, strings, symbols, events } = this;
    const objects = this.segments.length + this.blocks.length + this.annotations.length;
    const tables = (symbols.frames.count + symbols.stacks.count) * 28 + symbols.strings.length * 100;
    const others = objects * 130 + this.bigints.length * 48 + this.streams.length * 80;
    this.worth.check(read, held + stack.held + containers.held + strings.held + tables + others);
    const loose = events.count - containers.listedEvents + Math.max(0, objects - containers.listedObjects);
    if (loose > open + MAX_LOOSE_ROWS)
      throw new InputError(`${loose} events and blocks of the file are in no list: it is damaged or not a recording`);
  }

  /** Puts the keys and values in stack slots `from` to `to` into the dict in `slot`. */
  setItems(slot: number, from: number, to: number, offset: number): void {
    const { tags, values } = this.stack;
    if (from === to) return;
    if (tags[slot] === Tag.GenericDict) {
      this.appendItems(values[slot]!, from, to);
      return;
    }
    if (tags[slot] !== Tag.Dict) {
      throw new InputError(
        `at byte ${offset} the file adds keys to ${describeTag(tags[slot]!)}, which no memory snapshot does: it is damaged or something else`,
      );
    }
    const present = this.dict.gather(this.stack, from, to, offset);
    if (present & EVENT_KEYS) this.finishEvent(slot);
    else if ((present & FRAME_KEYS) === FRAME_KEYS) this.finishFrame(slot);
    else if (present & SEGMENT_KEYS) this.finishSegment(slot);
    else if ((present & BLOCK_KEYS) === BLOCK_KEYS) this.finishBlock(slot, this.dict.size(Key.size), this.dict.blockState());
    else if ((present & HISTORY_KEYS) === HISTORY_KEYS) this.finishBlock(slot, 0, 'free');
    else if ((present & ANNOTATION_KEYS) === ANNOTATION_KEYS) this.finishAnnotation(slot);
    else this.put(slot, Tag.GenericDict, this.collect(from, to));
  }

  /** Appends stack slots `from` to `to` to the list in `slot`. */
  append(slot: number, from: number, to: number, offset: number): void {
    const { tags, values } = this.stack;
    if (from === to) return;
    switch (tags[slot]) {
      case Tag.List:
        this.makeList(slot, from, to);
        return;
      case Tag.GenericList:
        if (this.containers.frozenStack(values[slot]!) !== NOT_FROZEN) break;
        this.appendItems(values[slot]!, from, to);
        return;
      case Tag.Stack:
      case Tag.Pair: {
        const container = this.spill(tags[slot]!, values[slot]!);
        this.put(slot, Tag.GenericList, container);
        this.appendItems(container, from, to);
        return;
      }
      case Tag.Texts:
        values[slot] = this.texts(values[slot]!, from, to);
        return;
    }
    throw new InputError(
      `at byte ${offset} the file appends to ${describeTag(tags[slot]!)}, which no memory snapshot does: it is damaged or something else`,
    );
  }

  /** Makes a list or tuple of stack slots `from` to `to`, in `slot`, which may be one of them. */
  makeList(slot: number, from: number, to: number): void {
    const { tags, values } = this.stack;
    const first = from < to ? tags[from]! : Tag.Absent;
    let uniform = from + 1;
    while (uniform < to && tags[uniform] === first) uniform++;
    if (from === to) this.put(slot, Tag.List, 0);
    else if (uniform < to) this.put(slot, Tag.GenericList, this.collect(from, to));
    else if (first === Tag.Frame) {
      this.worth.stackItems += to - from;
      this.put(slot, Tag.Stack, this.stackBuilder.build(values, from, to));
    } else if (first === Tag.String) this.put(slot, Tag.Texts, this.texts(NO_STACK, from, to));
    else {
      const pair = first === Tag.Number && to - from === 2 ? this.pools.internPair(values[from]!, values[from + 1]!) : -1;
      if (pair >= 0) this.put(slot, Tag.Pair, pair);
      else this.put(slot, Tag.GenericList, this.collect(from, to));
    }
  }

  /** The stack `outer` with a list of lines behind it, outermost first. Values that are no text are left out. */
  private texts(outer: number, from: number, to: number): number {
    const { tags, values } = this.stack;
    let node = outer;
    if (to - from > MAX_LINES) return NO_STACK;
    for (let slot = from; slot < to; slot++) {
      if (tags[slot] === Tag.String) node = this.forward.push(node, values[slot]!, this.textOf);
    }
    return node;
  }

  private put(slot: number, tag: number, value: number): void {
    this.stack.tags[slot] = tag;
    this.stack.values[slot] = value;
  }

  private collect(from: number, to: number): number {
    const container = this.containers.create();
    this.appendItems(container, from, to);
    return container;
  }

  private appendItems(container: number, from: number, to: number): void {
    const { tags, values } = this.stack;
    for (let slot = from; slot < to; slot++) this.containers.append(container, tags[slot]!, values[slot]!);
  }

  /** Turns a list that was stored in a special form back into a plain list. */
  private spill(tag: number, value: number): number {
    const container = this.containers.create();
    if (tag === Tag.Pair) {
      for (const number of this.pools.pair(value)) this.containers.append(container, Tag.Number, number);
    } else {
      const { stacks } = this.symbols;
      for (let node = value; node >= 0; node = stacks.parent(node)) this.containers.append(container, Tag.Frame, stacks.frame(node));
      // A few bytes of the file can repeat a stack of any length.
      this.worth.check(0, this.containers.held);
    }
    return container;
  }

  private finishEvent(slot: number): void {
    if (this.dict.tags[Key.action] !== Tag.String) throw this.dict.wrong(Key.action, 'text');
    const action = this.dict.values[Key.action]!;
    const kind = action < KIND_OF_ACTION.length ? (KIND_OF_ACTION[action] as EventKind | 0) : 0;
    if (kind === 0) {
      const { unknownActions } = this;
      let name = this.strings.text(action);
      if (unknownActions.size >= MAX_UNKNOWN_ACTIONS && !unknownActions.has(name)) name = '...';
      unknownActions.set(name, (unknownActions.get(name) ?? 0) + 1);
      this.put(slot, Tag.SkippedEvent, 0);
      return;
    }
    let address: number;
    if (kind === EventKind.Oom) address = this.dict.has(Key.device_free) ? this.dict.size(Key.device_free) : 0;
    else if (kind === EventKind.Snapshot && !this.dict.has(Key.addr)) address = 0;
    else address = this.dict.address(Key.addr);
    const row = this.events.append(
      kind,
      address,
      kind === EventKind.Annotate && !this.dict.has(Key.size) ? 0 : this.dict.size(Key.size),
      this.dict.time(),
      this.streamOf(),
      this.dict.has(Key.pool_id) ? this.dict.pool(Key.pool_id) : -1,
      this.frames(),
      this.dict.text(Key.user_metadata),
    );
    if (this.dict.has(Key.compile_context) && this.dict.tags[Key.compile_context] === Tag.String) {
      const context = this.dict.values[Key.compile_context]!;
      if (context !== Word['N/A'] && context !== Word['']) this.events.setOptional(row, 'compileContext', this.strings.symbol(context));
    }
    this.worth.rows++;
    this.put(slot, Tag.Event, row);
  }

  private finishFrame(slot: number): void {
    const line = this.dict.tags[Key.line] === Tag.Number ? this.dict.values[Key.line]! : 0;
    const frame = this.symbols.frames.intern(
      this.dict.text(Key.name),
      this.dict.text(Key.filename),
      Number.isInteger(line) && Math.abs(line) <= INT32_MAX ? line : 0,
    );
    this.worth.frames++;
    this.put(slot, Tag.Frame, frame);
  }

  private finishSegment(slot: number): void {
    const blocksTag = this.dict.has(Key.blocks) ? this.dict.tags[Key.blocks]! : Tag.List;
    if (blocksTag !== Tag.List && blocksTag !== Tag.GenericList) throw this.dict.wrong(Key.blocks, 'a list of blocks');
    this.checkObjectCount(this.segments.length);
    this.segments.push({
      device: this.dict.segmentDevice(),
      address: this.dict.address(Key.address),
      size: this.dict.size(Key.total_size),
      stream: this.streamOf(),
      pool: this.dict.has(Key.segment_pool_id) ? this.dict.pool(Key.segment_pool_id) : 0,
      small: this.dict.has(Key.segment_type) && this.dict.values[Key.segment_type] === Word.small,
      expandable:
        this.dict.has(Key.is_expandable) && this.dict.tags[Key.is_expandable] === Tag.Bool && this.dict.values[Key.is_expandable] === 1,
      stack: this.frames(),
      blocksTag,
      blocksValue: this.dict.values[Key.blocks]!,
    });
    this.worth.rows++;
    this.put(slot, Tag.Segment, this.segments.length - 1);
  }

  private finishBlock(slot: number, size: number, state: BlockState): void {
    this.checkObjectCount(this.blocks.length);
    let requested = 0;
    let stack = this.frames();
    if (this.dict.has(Key.real_size)) requested = this.dict.size(Key.real_size);
    else if (this.dict.has(Key.requested_size)) requested = this.dict.size(Key.requested_size);
    else if (this.dict.has(Key.history)) {
      const latest = this.latestOfHistory();
      requested = latest?.requested ?? 0;
      stack = latest?.stack ?? stack;
    } else if (state !== 'free') requested = size;
    const address = this.dict.has(Key.address) ? this.dict.address(Key.address) : NO_ADDRESS;
    this.blocks.push({ address, size, requested, state, stack });
    this.worth.rows++;
    this.put(slot, Tag.Block, this.blocks.length - 1);
  }

  private finishAnnotation(slot: number): void {
    this.checkObjectCount(this.annotations.length);
    const stage = this.dict.tags[Key.stage] === Tag.String ? this.dict.values[Key.stage] : -1;
    this.annotations.push({
      name: this.symbols.strings[this.dict.text(Key.name)] ?? '',
      stage: stage === Word.START ? 'START' : stage === Word.END ? 'END' : 'MARK',
      device: this.dict.has(Key.device) ? this.dict.size(Key.device) : 0,
      timeUs: this.dict.time(),
    });
    this.worth.rows++;
    this.put(slot, Tag.Annotation, this.annotations.length - 1);
  }

  private streamOf(): number {
    const handle = this.dict.has(Key.stream) ? this.dict.address(Key.stream) : 0;
    if (handle === this.lastStream) return this.lastStreamIndex;
    let index = this.streamIndex.get(handle);
    if (index === undefined) {
      index = this.streams.push(handle) - 1;
      this.streamIndex.set(handle, index);
    }
    this.lastStream = handle;
    this.lastStreamIndex = index;
    return index;
  }

  private latestOfHistory(): Block | undefined {
    let latest: Block | undefined;
    if (this.dict.tags[Key.history] === Tag.GenericList) {
      this.containers.forEach(this.dict.values[Key.history]!, (tag, value) => {
        if (tag === Tag.Block) latest = this.blocks[value];
        return false;
      });
    }
    return latest;
  }

  private frames(): number {
    const stack = this.ownFrames();
    const hasForward = this.dict.has(Key.forward_frames) && this.dict.tags[Key.forward_frames] === Tag.Texts;
    return hasForward ? this.forward.behind(stack, this.dict.values[Key.forward_frames]!) : stack;
  }

  private ownFrames(): number {
    if (!this.dict.has(Key.frames)) return NO_STACK;
    const value = this.dict.values[Key.frames]!;
    switch (this.dict.tags[Key.frames]) {
      case Tag.Stack:
        return value;
      case Tag.List:
      case Tag.None:
        return NO_STACK;
      case Tag.GenericList:
        return this.stackOfList(value);
    }
    throw this.dict.wrong(Key.frames, 'a list of stack frames');
  }

  /** The call stack of a list that arrived in several batches. */
  private stackOfList(container: number): number {
    const frozen = this.containers.frozenStack(container);
    if (frozen !== NOT_FROZEN) return frozen;
    const frames: number[] = [];
    this.containers.forEach(container, (tag, value) => {
      if (tag !== Tag.Frame) throw this.dict.wrong(Key.frames, 'a list of stack frames');
      frames.push(value);
      return true;
    });
    let node = NO_STACK;
    for (let at = frames.length - 1; at >= 0; at--) node = this.symbols.stacks.push(node, frames[at]!);
    this.containers.freeze(container, node);
    return node;
  }

  private checkObjectCount(count: number): void {
    if (count >= MAX_OBJECTS)
      throw new InputError(
        `the file has more than ${MAX_OBJECTS} blocks or segments, more than any GPU has: it is damaged or something else`,
      );
  }
}
