// The fields of the dict that is being turned into a row: each is read as what it must be, or the file is refused.
import { InputError } from '../../base/errors.ts';
import type { Symbols } from '../symbols.ts';
import type { BlockState } from '../trace.ts';
import { KEY_NAMES, Key, Word } from './names.ts';
import type { PoolTable } from './pools.ts';
import type { StringTable } from './strings.ts';
import { describeTag, Tag, type ValueStack } from './values.ts';

const KEY_COUNT = KEY_NAMES.length;

/** The device of segments of pinned host memory. */
export const HOST_DEVICE = -1;

export class DictFields {
  readonly tags: Uint8Array = new Uint8Array(KEY_COUNT);
  readonly values: Float64Array = new Float64Array(KEY_COUNT);
  private present = 0;
  private offset = 0;
  private readonly symbols: Symbols;
  private readonly strings: StringTable;
  private readonly pools: PoolTable;
  private readonly bigints: readonly bigint[];

  constructor(symbols: Symbols, strings: StringTable, pools: PoolTable, bigints: readonly bigint[]) {
    this.symbols = symbols;
    this.strings = strings;
    this.pools = pools;
    this.bigints = bigints;
  }

  /** Takes the keys and values in stack slots `from` to `to`. `offset` is for messages. Gives a bit for each key. */
  gather(stack: ValueStack, from: number, to: number, offset: number): number {
    const { tags, values } = this;
    let present = 0;
    for (let slot = from; slot < to; slot += 2) {
      const key = stack.values[slot]!;
      if (stack.tags[slot] !== Tag.String || key >= KEY_COUNT) continue;
      tags[key] = stack.tags[slot + 1]!;
      values[key] = stack.values[slot + 1]!;
      present |= 1 << key;
    }
    this.present = present;
    this.offset = offset;
    return present;
  }

  has(key: number): boolean {
    return (this.present & (1 << key)) !== 0;
  }

  size(key: number): number {
    const value = this.values[key]!;
    if (!this.has(key) || this.tags[key] !== Tag.Number || !Number.isSafeInteger(value) || value < 0) {
      throw this.wrong(key, 'a number of bytes or an index');
    }
    return value;
  }

  /** PyTorch writes -1 for pinned host memory. */
  segmentDevice(): number {
    const isHost = this.tags[Key.device] === Tag.Number && this.values[Key.device] === HOST_DEVICE;
    return !this.has(Key.device) ? 0 : isHost ? HOST_DEVICE : this.size(Key.device);
  }

  address(key: number): number {
    const value = this.values[key]!;
    const tag = this.has(key) ? this.tags[key] : Tag.Absent;
    if (tag === Tag.Number && Number.isSafeInteger(value)) {
      // PyTorch's C++ writer stores unsigned pointers as signed integers.
      return this.symbols.addresses.encode(value >= 0 ? value : BigInt.asUintN(64, BigInt(value)));
    }
    if (tag !== Tag.BigInt) throw this.wrong(key, 'an address');
    const exact = this.bigints[value]!;
    return this.symbols.addresses.encode(exact < 0n && exact >= -(1n << 63n) ? BigInt.asUintN(64, exact) : exact);
  }

  time(): number {
    if (!this.has(Key.time_us) || this.tags[Key.time_us] === Tag.None) return 0;
    const value = this.values[Key.time_us]!;
    if (this.tags[Key.time_us] !== Tag.Number || !Number.isFinite(value)) throw this.wrong(Key.time_us, 'a time in microseconds');
    return value;
  }

  text(key: number): number {
    return this.has(key) && this.tags[key] === Tag.String ? this.strings.symbol(this.values[key]!) : 0;
  }

  pool(key: number): number {
    const pool = this.tags[key] === Tag.Pair ? this.pools.poolOfPair(this.values[key]!) : -1;
    if (pool < 0) throw this.wrong(key, 'a pair of integers');
    return pool;
  }

  blockState(): BlockState {
    switch (this.tags[Key.state] === Tag.String ? this.values[Key.state] : -1) {
      case Word.active_allocated:
        return 'live';
      case Word.active_pending_free:
      case Word.active_awaiting_free:
        return 'pending';
      case Word.inactive:
        return 'free';
    }
    throw this.wrong(Key.state, 'one of active_allocated, active_pending_free, inactive');
  }

  wrong(key: number, expected: string): InputError {
    const found = this.has(key) ? describeTag(this.tags[key]!) : 'nothing';
    const value = this.has(key) && this.tags[key] === Tag.Number ? ` ${this.values[key]}` : '';
    return new InputError(
      `the dict that ends at byte ${this.offset} has ${found}${value} for '${KEY_NAMES[key]}' where ${expected} is expected: the file is damaged or not a memory snapshot`,
    );
  }
}
