// Collects the blocks of a recording of accesses, and their uses, by pointer.
import { InputError } from '../../base/errors.ts';
import type { Access, AccessRecording, RecordedBlock } from '../swaps/accesses.ts';

export interface OpenBlock {
  readonly size: number;
  readonly birthUs: number;
  deathUs: number;
  readonly accesses: Access[];
}

/** A pointer may be reused after its block was freed. */
export class BlockCollector {
  readonly blocks: OpenBlock[] = [];
  private readonly open = new Map<number | string, OpenBlock>();
  private live = 0;

  begin(pointer: number | string, size: number, timeUs: number): void {
    this.end(pointer, timeUs);
    const block: OpenBlock = { size, birthUs: timeUs, deathUs: Number.POSITIVE_INFINITY, accesses: [] };
    this.live += size;
    if (this.live > Number.MAX_SAFE_INTEGER) throw new InputError('the sizes of the blocks add up to more than any memory holds');
    this.blocks.push(block);
    this.open.set(pointer, block);
  }

  end(pointer: number | string, timeUs: number): void {
    const block = this.open.get(pointer);
    if (!block) return;
    block.deathUs = timeUs;
    this.live -= block.size;
    this.open.delete(pointer);
  }

  access(pointer: number | string, access: Access): void {
    const block = this.open.get(pointer);
    const last = block?.accesses.at(-1);
    if (!block) return;
    // If an operator reads and writes a block, that is one access.
    if (last && last.fromUs === access.fromUs)
      block.accesses[block.accesses.length - 1] = { ...access, writes: access.writes || last.writes };
    else block.accesses.push(access);
  }
}

export function finishRecording(
  name: string,
  blocks: readonly RecordedBlock[],
  steps: [number, number][],
  untouchedBytes: number,
  moments: number[],
): AccessRecording {
  return { name, blocks, steps, untouchedBytes, momentsUs: Float64Array.from(moments).sort() };
}
