// Writes pickles of any protocol from 2 to 5, so that tests can make snapshots no PyTorch at hand would write.
// With `memoize` off nothing is shared or stored, as the smallest legal pickle would have it.

export class Tuple {
  readonly items: readonly PickleValue[];
  constructor(...items: PickleValue[]) {
    this.items = items;
  }
}

export type PickleValue = null | boolean | number | bigint | string | Uint8Array | Tuple | readonly PickleValue[] | PickleDict;
export interface PickleDict {
  readonly [key: string]: PickleValue;
}

export interface PickleOptions {
  readonly protocol?: 2 | 3 | 4 | 5;
  readonly memoize?: boolean;
  /** Items per APPENDS or SETITEMS; Python's is 1000. */
  readonly batch?: number;
}

export function writePickle(value: PickleValue, options: PickleOptions = {}): Uint8Array {
  return new PickleWriter(options).write(value);
}

class PickleWriter {
  private readonly protocol: number;
  private readonly memoize: boolean;
  private readonly batch: number;
  private readonly out: number[] = [];
  private readonly memo = new Map<unknown, number>();

  constructor(options: PickleOptions) {
    this.protocol = options.protocol ?? 4;
    this.memoize = options.memoize ?? true;
    this.batch = options.batch ?? 1000;
  }

  write(value: PickleValue): Uint8Array {
    this.save(value);
    this.out.push(0x2e);
    const body = Uint8Array.from(this.out);
    if (this.protocol < 4) return Uint8Array.of(0x80, this.protocol, ...body);
    const framed = new Uint8Array(11 + body.length);
    framed.set([0x80, this.protocol, 0x95]);
    new DataView(framed.buffer).setBigUint64(3, BigInt(body.length), true);
    framed.set(body, 11);
    return framed;
  }

  private save(value: PickleValue): void {
    const { out } = this;
    if (value === null) out.push(0x4e);
    else if (typeof value === 'boolean') out.push(value ? 0x88 : 0x89);
    else if (typeof value === 'number' && !Number.isInteger(value)) this.operand(0x47, 8, (view) => view.setFloat64(0, value));
    else if (typeof value === 'number' || typeof value === 'bigint') this.integer(BigInt(value));
    else if (this.recall(value)) return;
    else if (typeof value === 'string') this.text(value);
    else if (value instanceof Uint8Array) this.bytes(value);
    else if (value instanceof Tuple) this.tuple(value);
    else if (Array.isArray(value)) this.list(value);
    else this.dict(value as PickleDict);
  }

  private recall(value: unknown): boolean {
    const index = this.memo.get(value);
    if (index === undefined) return false;
    if (index < 256) this.out.push(0x68, index);
    else this.operand(0x6a, 4, (view) => view.setUint32(0, index, true));
    return true;
  }

  private store(value: unknown): void {
    if (!this.memoize) return;
    const index = this.memo.size;
    this.memo.set(value, index);
    if (this.protocol >= 4) this.out.push(0x94);
    else if (index < 256) this.out.push(0x71, index);
    else this.operand(0x72, 4, (view) => view.setUint32(0, index, true));
  }

  private integer(value: bigint): void {
    if (value >= 0n && value < 256n) this.out.push(0x4b, Number(value));
    else if (value >= 0n && value < 65536n) this.operand(0x4d, 2, (view) => view.setUint16(0, Number(value), true));
    else if (BigInt.asIntN(32, value) === value) this.operand(0x4a, 4, (view) => view.setInt32(0, Number(value), true));
    else {
      let length = 5;
      while (BigInt.asIntN(8 * length, value) !== value) length++;
      this.out.push(0x8a, length);
      for (let at = 0; at < length; at++) this.out.push(Number((value >> BigInt(8 * at)) & 0xffn));
    }
  }

  private text(value: string): void {
    const encoded = new TextEncoder().encode(value);
    if (this.protocol >= 4 && encoded.length < 256) this.out.push(0x8c, encoded.length);
    else this.operand(0x58, 4, (view) => view.setUint32(0, encoded.length, true));
    this.out.push(...encoded);
    this.store(value);
  }

  private bytes(value: Uint8Array): void {
    this.operand(0x42, 4, (view) => view.setUint32(0, value.length, true));
    this.out.push(...value);
    this.store(value);
  }

  private tuple(value: Tuple): void {
    const { items } = value;
    if (items.length > 3) this.out.push(0x28);
    for (const item of items) this.save(item);
    this.out.push(items.length === 0 ? 0x29 : items.length > 3 ? 0x74 : 0x84 + items.length);
    if (items.length > 0) this.store(value);
  }

  private list(items: readonly PickleValue[]): void {
    this.out.push(0x5d);
    this.store(items);
    for (let from = 0; from < items.length; from += this.batch) {
      const batch = items.slice(from, from + this.batch);
      if (batch.length > 1) this.out.push(0x28);
      for (const item of batch) this.save(item);
      this.out.push(batch.length > 1 ? 0x65 : 0x61);
    }
  }

  private dict(value: PickleDict): void {
    this.out.push(0x7d);
    this.store(value);
    const entries = Object.entries(value);
    for (let from = 0; from < entries.length; from += Math.max(this.batch, 64)) {
      const batch = entries.slice(from, from + Math.max(this.batch, 64));
      if (batch.length > 1) this.out.push(0x28);
      for (const [key, item] of batch) {
        this.save(key);
        this.save(item);
      }
      this.out.push(batch.length > 1 ? 0x75 : 0x73);
    }
  }

  private operand(opcode: number, size: number, fill: (view: DataView) => void): void {
    const bytes = new Uint8Array(size);
    fill(new DataView(bytes.buffer));
    this.out.push(opcode, ...bytes);
  }
}
