// Builds segments whose blocks are in address order and cover the segment.
// Old files lack block addresses, and files made from profiles have holes: both are completed here.
import { InputError } from '../../base/errors.ts';
import { NO_STACK } from '../symbols.ts';
import type { Block, Segment } from '../trace.ts';
import { NO_ADDRESS, type Rows } from './rows.ts';
import { describeTag, Tag } from './values.ts';

export class SegmentBuilder {
  private readonly rows: Rows;
  /** Blocks used so far. A block belongs to one segment, but a hostile file could list it in all of them. */
  private readonly used = new Set<number>();

  constructor(rows: Rows) {
    this.rows = rows;
  }

  build(index: number): { device: number; segment: Segment } {
    const raw = this.rows.segments[index]!;
    const { device, address, size, stream, pool, small, expandable, stack } = raw;
    const found = raw.blocksTag === Tag.GenericList ? this.blocksOf(raw.blocksValue, address) : [];
    const blocks = found.length > 0 ? this.tiled(found, address, size) : found;
    return { device, segment: { address, size, stream, pool, small, expandable, stack, blocks } };
  }

  private blocksOf(container: number, segmentAddress: number): Block[] {
    const { containers, blocks } = this.rows;
    const found: Block[] = [];
    let next = segmentAddress;
    containers.forEach(container, (tag, value) => {
      if (tag !== Tag.Block) throw new InputError(`a segment holds ${describeTag(tag)} where a block is expected`);
      if (this.used.has(value)) throw new InputError('two segments hold the same block: the file is damaged');
      this.used.add(value);
      const block = blocks[value]!;
      found.push(block.address === NO_ADDRESS ? { ...block, address: next } : block);
      next = found[found.length - 1]!.address + block.size;
      return true;
    });
    return found.sort((a, b) => a.address - b.address);
  }

  private tiled(blocks: readonly Block[], address: number, size: number): Block[] {
    const tiled: Block[] = [];
    let next = address;
    for (const block of blocks) {
      if (block.address < next || block.address + block.size > address + size) {
        const at = this.rows.symbols.addresses.format(address);
        throw new InputError(`the blocks of the segment at ${at} overlap or lie outside of it: the file is damaged`);
      }
      if (block.address > next) tiled.push(hole(next, block.address));
      tiled.push(block);
      next = block.address + block.size;
    }
    if (next < address + size) tiled.push(hole(next, address + size));
    return tiled;
  }
}

function hole(from: number, to: number): Block {
  return { address: from, size: to - from, requested: 0, state: 'free', stack: NO_STACK };
}
