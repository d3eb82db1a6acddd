// Any allocator on real memory: fills every block when it is allocated and compares it when it is freed. This detects live
// blocks that share bytes, and mappings to the wrong memory.
import { type Allocator, type CensusGroup, OUT_OF_MEMORY } from '../allocator/allocator.ts';
import type { TouchableMemory } from '../backend/memory.ts';
import { InvariantError } from '../base/errors.ts';

export interface Verification {
  /** Blocks filled and found unchanged. */
  blocks: number;
  /** Bytes filled. */
  bytes: number;
  /** Words read back. */
  words: number;
}

interface Mark {
  readonly word: number;
  readonly address: number;
  readonly size: number;
}

const WORD = 4;
/** Odd, so that all 2^32 marks are used before one repeats. */
const MARK_STEP = 0x9e3779b1;

export class VerifyingAllocator implements Allocator {
  readonly verification: Verification = { blocks: 0, bytes: 0, words: 0 };
  private readonly inner: Allocator;
  private readonly memory: TouchableMemory;
  /** Distance between the words that are read back. */
  private readonly stride: number;
  private readonly marks = new Map<number, Mark>();
  private nextWord = 1;

  constructor(inner: Allocator, memory: TouchableMemory, stride: number) {
    this.inner = inner;
    this.memory = memory;
    this.stride = stride;
  }

  malloc(requested: number, stream: number, pool: number): number {
    const block = this.inner.malloc(requested, stream, pool);
    if (block === OUT_OF_MEMORY) return block;
    const mark = { word: this.nextWord, address: this.inner.addressOf(block), size: this.inner.sizeOf(block) };
    this.nextWord = (this.nextWord + MARK_STEP) >>> 0;
    this.memory.fill(mark.address, mark.size, mark.word);
    this.marks.set(block, mark);
    this.verification.bytes += mark.size;
    return block;
  }

  free(block: number): void {
    this.expectUnchanged(block);
    this.verification.blocks++;
    this.inner.free(block);
  }

  complete(block: number): void {
    this.marks.delete(block);
    this.inner.complete(block);
  }

  emptyCache(): void {
    this.inner.emptyCache();
  }

  releasePool(pool: number): void {
    this.inner.releasePool?.(pool);
  }

  addressOf(block: number): number {
    return this.inner.addressOf(block);
  }

  sizeOf(block: number): number {
    return this.inner.sizeOf(block);
  }

  get reservedBytes(): number {
    return this.inner.reservedBytes;
  }

  get allocatedBytes(): number {
    return this.inner.allocatedBytes;
  }

  get retries(): number {
    return this.inner.retries;
  }

  get ooms(): number {
    return this.inner.ooms;
  }

  census(): CensusGroup[] {
    return this.inner.census();
  }

  check(): void {
    this.inner.check();
    for (const block of this.marks.keys()) this.expectUnchanged(block);
  }

  private expectUnchanged(block: number): void {
    const mark = this.marks.get(block);
    if (!mark) return;
    const last = mark.size - WORD;
    for (let offset = 0; ; offset = Math.min(last, offset + this.stride)) {
      const found = this.memory.readWord(mark.address + offset);
      this.verification.words++;
      if (found !== mark.word) {
        throw new InvariantError(
          `block ${block} holds ${found} at byte ${offset} of ${mark.size}, not ${mark.word}: its memory was given out twice or mapped wrongly`,
        );
      }
      if (offset === last) return;
    }
  }
}
