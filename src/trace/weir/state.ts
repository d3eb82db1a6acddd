// Segments and their blocks as rows of a `.weir` file, in parts of bounded size, and back.
import type { Block, Segment } from '../trace.ts';
import { BLOCK_BYTES, BLOCK_STATES, SCOPE_BYTES, SEGMENT_BYTES, SegmentFlag } from './format.ts';
import { type AddressCodec, setU64 } from './numbers.ts';
import type { DeviceTables, FileTables } from './tables.ts';

export function stateBytes(segments: readonly Segment[]): number {
  return segments.reduce((bytes, segment) => bytes + SEGMENT_BYTES + segment.blocks.length * BLOCK_BYTES, SCOPE_BYTES);
}

/** Splits a list of segments into parts of about `limit` bytes. There is always at least one part. */
export function statePartsOf(segments: readonly Segment[], limit: number): Segment[][] {
  const parts: Segment[][] = [[]];
  let bytes = 0;
  for (const segment of segments) {
    const grown = bytes + SEGMENT_BYTES + segment.blocks.length * BLOCK_BYTES;
    if (bytes > 0 && grown > limit) {
      parts.push([segment]);
      bytes = grown - bytes;
    } else {
      parts.at(-1)!.push(segment);
      bytes = grown;
    }
  }
  return parts;
}

export function encodeState(view: DataView, at: number, segments: readonly Segment[], addresses: AddressCodec): void {
  let row = at;
  for (const segment of segments) {
    addresses.set(view, row, segment.address);
    setU64(view, row + 8, segment.size);
    view.setInt32(row + 16, segment.stream, true);
    view.setInt32(row + 20, segment.pool, true);
    view.setInt32(row + 24, segment.stack, true);
    view.setUint32(row + 28, (segment.small ? SegmentFlag.Small : 0) | (segment.expandable ? SegmentFlag.Expandable : 0), true);
    view.setUint32(row + 32, segment.blocks.length, true);
    row += SEGMENT_BYTES;
  }
  for (const segment of segments) {
    for (const block of segment.blocks) {
      addresses.set(view, row, block.address);
      setU64(view, row + 8, block.size);
      setU64(view, row + 16, block.requested);
      view.setInt32(row + 24, block.stack, true);
      view.setUint32(row + 28, BLOCK_STATES.indexOf(block.state), true);
      row += BLOCK_BYTES;
    }
  }
}

/** Reads `count` segments and their blocks, which must fill the bytes `at` to `end` exactly. */
export function decodeState(view: DataView, at: number, end: number, count: number, device: DeviceTables, tables: FileTables): Segment[] {
  let block = at + count * SEGMENT_BYTES;
  if (block > end) tables.refuse(`declares ${count} segments but is too short for them`);
  const segments: Segment[] = [];
  for (let index = 0, row = at; index < count; index++, row += SEGMENT_BYTES) {
    const blockCount = view.getUint32(row + 32, true);
    if (block + blockCount * BLOCK_BYTES > end) tables.refuse(`declares a segment of ${blockCount} blocks but is too short for them`);
    const size = tables.bytesAt(view, row + 8);
    if (size === 0) tables.refuse('declares a segment without bytes');
    const flags = view.getUint32(row + 28, true);
    const blocks: Block[] = [];
    for (let left = blockCount; left > 0; left--, block += BLOCK_BYTES) blocks.push(decodeBlock(view, block, tables));
    segments.push({
      address: tables.addresses.get(view, row),
      size,
      stream: tables.streamAt(device, view.getInt32(row + 16, true)),
      // A segment is always in a pool. If the writer did not know it: the default pool.
      pool: Math.max(0, tables.poolAt(device, view.getInt32(row + 20, true))),
      small: (flags & SegmentFlag.Small) !== 0,
      expandable: (flags & SegmentFlag.Expandable) !== 0,
      stack: tables.stackAt(view.getInt32(row + 24, true)),
      blocks,
    });
  }
  if (block !== end) tables.refuse(`has ${end - block} bytes left after its blocks`);
  return segments;
}

function decodeBlock(view: DataView, at: number, tables: FileTables): Block {
  const state = view.getUint32(at + 28, true);
  return {
    address: tables.addresses.get(view, at),
    size: tables.bytesAt(view, at + 8),
    requested: tables.bytesAt(view, at + 16),
    state: BLOCK_STATES[state] ?? tables.refuse(`holds a block in the unknown state ${state}`),
    stack: tables.stackAt(view.getInt32(at + 24, true)),
  };
}
