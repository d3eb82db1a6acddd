// The segments that PyTorch's allocator holds on one GPU, as its events tell: whole ones, and mapped parts of expandable ones.
import { SMALL_SEGMENT } from '../../trace/start-state.ts';
import type { Segment } from '../../trace/trace.ts';

/** A job of weeks has some thousands. A damaged ring must not fill our memory. */
const MOST_SEGMENTS = 1 << 16;

export type HeldSegment = Omit<Segment, 'blocks'>;

export class HeldSegments {
  /** Segments that were not kept because there are too many. */
  omitted = 0;
  private readonly plain = new Map<number, HeldSegment>();
  private readonly mapped = new Map<number, HeldSegment>();

  allocated(address: number, size: number, stream: number, pool: number, stack: number): void {
    if (this.hasRoom(this.plain, address))
      this.plain.set(address, { address, size, stream, pool, stack, small: size === SMALL_SEGMENT, expandable: false });
  }

  freed(address: number): void {
    this.plain.delete(address);
  }

  mappedAt(address: number, size: number, stream: number, pool: number, stack: number): void {
    if (this.hasRoom(this.mapped, address))
      this.mapped.set(address, { address, size, stream, pool, stack, small: size === SMALL_SEGMENT, expandable: true });
  }

  /** What is unmapped in one piece may have been mapped in several, and the other way round. */
  unmapped(address: number, size: number): void {
    const end = address + size;
    const exact = this.mapped.get(address);
    if (exact?.size === size) {
      this.mapped.delete(address);
      return;
    }
    for (const part of [...this.mapped.values()]) {
      const partEnd = part.address + part.size;
      if (partEnd <= address || part.address >= end) continue;
      this.mapped.delete(part.address);
      if (part.address < address) this.mapped.set(part.address, { ...part, size: address - part.address });
      if (partEnd > end) this.mapped.set(end, { ...part, address: end, size: partEnd - end });
    }
  }

  /** In address order. Adjacent mapped parts of one stream, pool and kind are one. */
  list(): HeldSegment[] {
    const found: HeldSegment[] = [];
    for (const part of [...this.mapped.values()].sort((a, b) => a.address - b.address)) {
      const last = found.at(-1);
      const continues =
        last !== undefined &&
        last.address + last.size === part.address &&
        last.stream === part.stream &&
        last.pool === part.pool &&
        last.small === part.small;
      if (continues) found[found.length - 1] = { ...last, size: last.size + part.size };
      else found.push(part);
    }
    return [...this.plain.values(), ...found].sort((a, b) => a.address - b.address);
  }

  private hasRoom(table: ReadonlyMap<number, HeldSegment>, address: number): boolean {
    if (this.plain.size + this.mapped.size < MOST_SEGMENTS || table.has(address)) return true;
    this.omitted++;
    return false;
  }
}
