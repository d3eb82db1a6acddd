// A hash map from addresses (non-negative safe integers) to small integers, in typed arrays.
// It takes a third of the memory of a Map<number, number> and is several times as fast for doubles.

const EMPTY = -1;
const TOMBSTONE = -2;

export class AddressMap {
  private keys: Float64Array;
  private values: Int32Array;
  private mask: number;
  private used = 0;
  private live = 0;

  constructor(expected = 16) {
    const capacity = powerOfTwo(expected * 2);
    this.keys = new Float64Array(capacity).fill(EMPTY);
    this.values = new Int32Array(capacity);
    this.mask = capacity - 1;
  }

  get size(): number {
    return this.live;
  }

  /** The value stored for `key`, or -1. */
  get(key: number): number {
    const slot = this.find(key);
    return slot < 0 ? -1 : this.values[slot]!;
  }

  set(key: number, value: number): void {
    const found = this.find(key);
    if (found >= 0) {
      this.values[found] = value;
      return;
    }
    if ((this.used + 1) * 4 > (this.mask + 1) * 3) this.rehash();
    let slot = hash(key) & this.mask;
    while (this.keys[slot]! >= 0) slot = (slot + 1) & this.mask;
    if (this.keys[slot] === EMPTY) this.used++;
    this.keys[slot] = key;
    this.values[slot] = value;
    this.live++;
  }

  /** Removes `key` and returns its value, or -1. */
  delete(key: number): number {
    const slot = this.find(key);
    if (slot < 0) return -1;
    this.keys[slot] = TOMBSTONE;
    this.live--;
    return this.values[slot]!;
  }

  forEach(visit: (key: number, value: number) => void): void {
    for (let slot = 0; slot <= this.mask; slot++) {
      if (this.keys[slot]! >= 0) visit(this.keys[slot]!, this.values[slot]!);
    }
  }

  private find(key: number): number {
    let slot = hash(key) & this.mask;
    for (;;) {
      const stored = this.keys[slot]!;
      if (stored === key) return slot;
      if (stored === EMPTY) return -1;
      slot = (slot + 1) & this.mask;
    }
  }

  private rehash(): void {
    const { keys, values } = this;
    const capacity = powerOfTwo(Math.max(16, this.live * 4));
    this.keys = new Float64Array(capacity).fill(EMPTY);
    this.values = new Int32Array(capacity);
    this.mask = capacity - 1;
    this.used = this.live;
    for (let old = 0; old < keys.length; old++) {
      const key = keys[old]!;
      if (key < 0) continue;
      let slot = hash(key) & this.mask;
      while (this.keys[slot]! >= 0) slot = (slot + 1) & this.mask;
      this.keys[slot] = key;
      this.values[slot] = values[old]!;
    }
  }
}

// Addresses are multiples of 512 and share their high bits, so both halves are mixed before masking.
function hash(key: number): number {
  const low = key | 0;
  const high = (key / 4294967296) | 0;
  let mixed = Math.imul(low ^ (low >>> 15), 0x2c1b3c6d) ^ Math.imul(high, 0x297a2d39);
  mixed ^= mixed >>> 12;
  mixed = Math.imul(mixed, 0x9e3779b1);
  return mixed ^ (mixed >>> 16);
}

function powerOfTwo(atLeast: number): number {
  let capacity = 16;
  while (capacity < atLeast) capacity *= 2;
  return capacity;
}
