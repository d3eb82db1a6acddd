// Device addresses as exact JavaScript numbers. CUDA's are below 2^48 and stay as they are.
// Other accelerators set high bits, so the top 16 bits are interned and the result stays below 2^53.
import { InputError } from '../base/errors.ts';

const WINDOW = 2 ** 48;
const MAX_WINDOWS = 31;

export class Addresses {
  /** The top 16 bits of addresses seen so far. */
  readonly windows: number[];

  constructor(windows: readonly number[] = [0]) {
    this.windows = [...windows];
  }

  /**
   * Encodes an unsigned 64-bit value as a number below 2^53. Different values stay different; order is kept within a
   * window of 2^48.
   */
  encode(value: number | bigint): number {
    if (typeof value === 'number' && value >= 0 && value < WINDOW && Number.isInteger(value)) return value;
    const exact = BigInt(value);
    if (exact < 0n || exact >= 1n << 64n) throw new InputError(`the address ${exact} does not fit 64 bits: the file is damaged`);
    const top = Number(exact >> 48n);
    let window = this.windows.indexOf(top);
    if (window < 0) window = this.windows.push(top) - 1;
    if (window > MAX_WINDOWS)
      throw new InputError('the addresses are scattered over the whole 64-bit range, which no allocator does: the file is damaged');
    return window * WINDOW + Number(exact & BigInt(WINDOW - 1));
  }

  decode(encoded: number): bigint {
    const window = Math.floor(encoded / WINDOW);
    return (BigInt(this.windows[window] ?? 0) << 48n) + BigInt(encoded - window * WINDOW);
  }

  format(encoded: number): string {
    return `0x${this.decode(encoded).toString(16)}`;
  }
}
