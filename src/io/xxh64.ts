// The checksum of zstd frames: the low half of XXH64 with seed 0. Content comes in pieces.
// The loop over the content uses pairs of 32-bit numbers, since BigInt is many times slower. The short end uses BigInt.

const PRIME1 = 0x9e3779b185ebca87n;
const PRIME2 = 0xc2b2ae3d27d4eb4fn;
const PRIME3 = 0x165667b19e3779f9n;
const PRIME4 = 0x85ebca77c2b2ae63n;
const PRIME5 = 0x27d4eb2f165667c5n;

const STRIPE = 32;
const LANES = 4;
/** The lanes at the beginning: low and high half of each. */
const START = Int32Array.from(
  [PRIME1 + PRIME2, PRIME2, 0n, -PRIME1].flatMap((lane) => [Number(lane & 0xffffffffn), Number((lane >> 32n) & 0xffffffffn)]),
);

export class Xxh64 {
  private readonly lanes = START.slice();
  private readonly held = new Uint8Array(STRIPE);
  private heldBytes = 0;
  private total = 0;

  /** Begins a new content. */
  reset(): void {
    this.lanes.set(START);
    this.heldBytes = 0;
    this.total = 0;
  }

  push(bytes: Uint8Array): void {
    this.total += bytes.length;
    let at = 0;
    if (this.heldBytes > 0) {
      at = Math.min(STRIPE - this.heldBytes, bytes.length);
      this.held.set(bytes.subarray(0, at), this.heldBytes);
      this.heldBytes += at;
      if (this.heldBytes < STRIPE) return;
      this.mix(this.held, 0, STRIPE);
      this.heldBytes = 0;
    }
    const whole = bytes.length - ((bytes.length - at) % STRIPE);
    this.mix(bytes, at, whole);
    this.held.set(bytes.subarray(whole));
    this.heldBytes = bytes.length - whole;
  }

  /** The low 32 bits of the hash. */
  low(): number {
    let hash = this.total < STRIPE ? PRIME5 : this.merged();
    hash += BigInt(this.total);
    const { held, heldBytes } = this;
    const view = new DataView(held.buffer);
    let at = 0;
    for (; at + 8 <= heldBytes; at += 8) hash = rotated(hash ^ round(0n, view.getBigUint64(at, true)), 27n) * PRIME1 + PRIME4;
    if (at + 4 <= heldBytes) {
      hash = rotated(hash ^ (BigInt(view.getUint32(at, true)) * PRIME1), 23n) * PRIME2 + PRIME3;
      at += 4;
    }
    for (; at < heldBytes; at++) hash = rotated(hash ^ (BigInt(held[at]!) * PRIME5), 11n) * PRIME1;
    hash = u64(hash);
    hash = u64((hash ^ (hash >> 33n)) * PRIME2);
    hash = u64((hash ^ (hash >> 29n)) * PRIME3);
    return Number((hash ^ (hash >> 32n)) & 0xffffffffn);
  }

  private merged(): bigint {
    // Typed arrays are little-endian wherever Node and browsers run.
    const view = new DataView(this.lanes.buffer);
    const lanes = Array.from({ length: LANES }, (_, lane) => view.getBigUint64(lane * 8, true));
    let hash = lanes.reduce((sum, lane, index) => sum + rotated(lane, [1n, 7n, 12n, 18n][index]!), 0n);
    for (const lane of lanes) hash = u64((hash ^ round(0n, lane)) * PRIME1 + PRIME4);
    return hash;
  }

  /** Mixes whole stripes: each lane takes 8 bytes of each. */
  private mix(bytes: Uint8Array, from: number, to: number): void {
    const { lanes } = this;
    for (let at = from; at < to; at += 8) {
      const lane = ((at - from) >> 2) & 6;
      const inputLow = bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24);
      const inputHigh = bytes[at + 4]! | (bytes[at + 5]! << 8) | (bytes[at + 6]! << 16) | (bytes[at + 7]! << 24);
      // lane += input * PRIME2
      let low = (lanes[lane]! >>> 0) + (Math.imul(inputLow, 0x27d4eb4f) >>> 0);
      let high = highProduct(inputLow, 0xeb4f, 0x27d4) + Math.imul(inputHigh, 0x27d4eb4f) + Math.imul(inputLow, 0xc2b2ae3d);
      high = (high + lanes[lane + 1]! + (low > 0xffffffff ? 1 : 0)) | 0;
      low |= 0;
      // lane = rotate left by 31, times PRIME1
      const turnedLow = (low << 31) | (high >>> 1);
      const turnedHigh = (high << 31) | (low >>> 1);
      lanes[lane] = Math.imul(turnedLow, 0x85ebca87);
      lanes[lane + 1] = highProduct(turnedLow, 0xca87, 0x85eb) + Math.imul(turnedHigh, 0x85ebca87) + Math.imul(turnedLow, 0x9e3779b1);
    }
  }
}

/** The high 32 bits of the product of two 32-bit numbers. The second is given as two halves of 16 bits. */
function highProduct(a: number, bLow: number, bHigh: number): number {
  const aLow = a & 0xffff;
  const aHigh = a >>> 16;
  const first = (Math.imul(aHigh, bLow) >>> 0) + (Math.imul(aLow, bLow) >>> 16);
  const second = (Math.imul(aLow, bHigh) >>> 0) + (first & 0xffff);
  return (Math.imul(aHigh, bHigh) + (first >>> 16) + (second >>> 16)) | 0;
}

function round(lane: bigint, input: bigint): bigint {
  return u64(rotated(lane + input * PRIME2, 31n) * PRIME1);
}

function rotated(value: bigint, bits: bigint): bigint {
  const word = u64(value);
  return u64((word << bits) | (word >> (64n - bits)));
}

function u64(value: bigint): bigint {
  return BigInt.asUintN(64, value);
}
