// The segments that PyTorch's allocator holds on one GPU, as its events tell: whole ones, and mapped parts of expandable ones.
import { SMALL_SEGMENT } from '../../trace/start-state.ts';
import type { Segment } from '../../trace/trace.ts';

/** A job of weeks has some thousands. A damaged ring must not fill our memory. */
const MOST_SEGMENTS = 1 << 16;

export type HeldSegment = Omit<Segment, 'blocks'>;

/** `order` counts up, so that of two segments the newer one is known. */
interface Kept {
  readonly segment: HeldSegment;
  readonly order: number;
}

export class HeldSegments {
  /** Segments that were not kept because there are too many. */
  omitted = 0;
  private readonly plain = new Map<number, Kept>();
  private readonly mapped = new Map<number, Kept>();
  private orders = 0;

  allocated(address: number, size: number, stream: number, pool: number, stack: number): void {
    this.add(this.plain, { address, size, stream, pool, stack, small: size === SMALL_SEGMENT, expandable: false });
  }

  freed(address: number): void {
    this.plain.delete(address);
  }

  mappedAt(address: number, size: number, stream: number, pool: number, stack: number): void {
    this.add(this.mapped, { address, size, stream, pool, stack, small: size === SMALL_SEGMENT, expandable: true });
  }

  /** What is unmapped in one piece may have been mapped in several, and the other way round. */
  unmapped(address: number, size: number): void {
    const end = address + size;
    const exact = this.mapped.get(address);
    if (exact?.segment.size === size) {
      this.mapped.delete(address);
      return;
    }
    for (const { segment: part, order } of [...this.mapped.values()]) {
      const partEnd = part.address + part.size;
      if (partEnd <= address || part.address >= end) continue;
      this.mapped.delete(part.address);
      if (part.address < address) this.mapped.set(part.address, { segment: { ...part, size: address - part.address }, order });
      if (partEnd > end) this.mapped.set(end, { segment: { ...part, address: end, size: partEnd - end }, order });
    }
  }

  /** In address order, without overlaps. Adjacent mapped parts of one stream, pool and kind are one. */
  list(): HeldSegment[] {
    const found: HeldSegment[] = [];
    for (const part of this.standing()) {
      const last = found.at(-1);
      const continues =
        last?.expandable === true &&
        part.expandable &&
        last.address + last.size === part.address &&
        last.stream === part.stream &&
        last.pool === part.pool &&
        last.small === part.small;
      if (continues) found[found.length - 1] = { ...last, size: last.size + part.size };
      else found.push(part);
    }
    return found;
  }

  /** If events were lost, a segment may stand for memory that was given back: where two overlap, the newer one is right. */
  private standing(): HeldSegment[] {
    const all = [...this.plain.values(), ...this.mapped.values()].sort((a, b) => a.segment.address - b.segment.address);
    const kept: Kept[] = [];
    for (const next of all) {
      let isKept = true;
      while (isKept && kept.length > 0) {
        const last = kept.at(-1)!;
        if (last.segment.address + last.segment.size <= next.segment.address) break;
        if (last.order > next.order) isKept = false;
        else kept.pop();
      }
      if (isKept) kept.push(next);
    }
    return kept.map(({ segment }) => segment);
  }

  private add(table: Map<number, Kept>, segment: HeldSegment): void {
    if (segment.size === 0) return;
    if (this.plain.size + this.mapped.size >= MOST_SEGMENTS && !table.has(segment.address)) this.omitted++;
    else table.set(segment.address, { segment, order: ++this.orders });
  }
}
