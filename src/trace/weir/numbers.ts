// 64-bit numbers between file and memory, without a bigint for each.
// Sizes are exact below 2^53, addresses always (see `Addresses`).
import { InputError } from '../../base/errors.ts';
import type { Addresses } from '../addresses.ts';

const LOW = 2 ** 32;
/** Size of a window of `Addresses`, in units of 2^32. */
const WINDOW_HIGHS = 2 ** 16;

export function setU64(view: DataView, at: number, value: number): void {
  if (!(value >= 0 && value < 2 ** 64 && Math.floor(value) === value))
    throw new InputError(`${value} does not fit an unsigned 64-bit number`);
  const high = Math.floor(value / LOW);
  view.setUint32(at, value - high * LOW, true);
  view.setUint32(at + 4, high, true);
}

/** Rounded above 2^53. */
export function getU64(view: DataView, at: number): number {
  return view.getUint32(at + 4, true) * LOW + view.getUint32(at, true);
}

/** Converts between the encoded addresses of a recording and the plain ones of a file. */
export class AddressCodec {
  private readonly addresses: Addresses;
  private readonly topOfWindow: number[] = [];
  private readonly baseOfTop = new Map<number, number>();

  constructor(addresses: Addresses) {
    this.addresses = addresses;
  }

  set(view: DataView, at: number, encoded: number): void {
    if (!(encoded >= 0 && encoded <= Number.MAX_SAFE_INTEGER && Math.floor(encoded) === encoded)) {
      throw new InputError(`${encoded} is not an address`);
    }
    let high = Math.floor(encoded / LOW);
    view.setUint32(at, encoded - high * LOW, true);
    if (high >= WINDOW_HIGHS) {
      const window = Math.floor(high / WINDOW_HIGHS);
      this.topOfWindow[window] ??= Number(this.addresses.decode(window * WINDOW_HIGHS * LOW) >> 48n);
      high = this.topOfWindow[window] * WINDOW_HIGHS + (high % WINDOW_HIGHS);
    }
    view.setUint32(at + 4, high, true);
  }

  get(view: DataView, at: number): number {
    const low = view.getUint32(at, true);
    const high = view.getUint32(at + 4, true);
    if (high < WINDOW_HIGHS) return high * LOW + low;
    const top = high >>> 16;
    let base = this.baseOfTop.get(top);
    if (base === undefined) {
      base = this.addresses.encode(BigInt(top) << 48n);
      this.baseOfTop.set(top, base);
    }
    return base + (high % WINDOW_HIGHS) * LOW + low;
  }
}
