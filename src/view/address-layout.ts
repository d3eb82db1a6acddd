// The y axis of the fragmentation map. Addresses are scattered over terabytes, so held ranges are put side by side, and
// freed ranges make room for later ones. The axis is about as long as the peak.
import type { PieceLog } from './pieces.ts';

/** Beyond this many ranges, fitting takes too long and they are stacked in address order. */
const MOST_PACKED = 4000;

interface Range {
  readonly address: number;
  size: number;
  from: number;
  to: number;
  offset: number;
}

export class AddressLayout {
  /** Length of the axis in bytes. */
  readonly height: number;
  private readonly ranges: readonly Range[];

  constructor(pieces: PieceLog) {
    this.ranges = joinPieces(pieces);
    this.height = this.ranges.length <= MOST_PACKED ? pack(this.ranges) : stack(this.ranges);
  }

  /** Position of an address on the axis; NaN: never held. */
  offsetOf(address: number): number {
    const range = this.rangeAt(address);
    return range ? range.offset + (address - range.address) : Number.NaN;
  }

  private rangeAt(address: number): Range | undefined {
    let low = 0;
    let high = this.ranges.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.ranges[middle]!.address <= address) low = middle + 1;
      else high = middle;
    }
    const range = this.ranges[low - 1];
    return range && address < range.address + range.size ? range : undefined;
  }
}

/** Merges overlapping pieces, and mapped pages that touch, since a block may span them. */
function joinPieces(pieces: PieceLog): Range[] {
  const order = pieces.address.map((_, row) => row).sort((a, b) => pieces.address[a]! - pieces.address[b]!);
  const ranges: Range[] = [];
  let lastMapped = false;
  for (const row of order) {
    const address = pieces.address[row]!;
    const end = address + pieces.size[row]!;
    const last = ranges.at(-1);
    const lastEnd = last ? last.address + last.size : Number.NEGATIVE_INFINITY;
    if (last && (address < lastEnd || (address === lastEnd && lastMapped && pieces.mapped[row]!))) {
      last.size = Math.max(lastEnd, end) - last.address;
      last.from = Math.min(last.from, pieces.from[row]!);
      last.to = Math.max(last.to, pieces.to[row]!);
    } else {
      ranges.push({ address, size: end - address, from: pieces.from[row]!, to: pieces.to[row]!, offset: 0 });
    }
    lastMapped = pieces.mapped[row]!;
  }
  return ranges;
}

/** First fit in order of time, beside the ranges held at the same time. Returns the height. */
function pack(ranges: readonly Range[]): number {
  const order = [...ranges].sort((a, b) => a.from - b.from || a.address - b.address);
  let present: Range[] = [];
  let height = 0;
  for (const range of order) {
    present = present.filter((other) => other.to > range.from);
    let offset = 0;
    for (const other of present) {
      if (other.offset - offset >= range.size) break;
      offset = Math.max(offset, other.offset + other.size);
    }
    range.offset = offset;
    present.push(range);
    present.sort((a, b) => a.offset - b.offset);
    height = Math.max(height, offset + range.size);
  }
  return height;
}

function stack(ranges: readonly Range[]): number {
  let height = 0;
  for (const range of ranges) {
    range.offset = height;
    height += range.size;
  }
  return height;
}
