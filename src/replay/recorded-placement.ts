// Puts the model's segments at their recorded addresses, since PyTorch breaks ties between equal blocks by address.
import { InventedPlacement, type Placement } from '../backend/simulated.ts';
import { EventKind, type Trace } from '../trace/trace.ts';

/** Far from any recorded address, for segments that the recording does not have. */
const OWN_TOP = 2 ** 48;
const OWN_BOTTOM = 2 ** 47;

export class RecordedPlacement implements Placement {
  readonly isRecorded = true;
  private readonly invented = new InventedPlacement(OWN_TOP, OWN_BOTTOM);
  /** Addresses not used yet, by size; the next one is last. */
  private readonly plain = new Map<number, number[]>();
  private expandable: number[] = [];
  /** Memory that is held, in address order: begin and end of each range. */
  private readonly begins: number[] = [];
  private readonly ends: number[] = [];

  /** The recorded segments in their recorded order. */
  static of(trace: Trace): RecordedPlacement {
    const placement = new RecordedPlacement();
    const { events } = trace;
    for (const segment of trace.startSegments) if (!segment.expandable) placement.expect(segment.address, segment.size, false);
    for (let event = 0; event < events.count; event++) {
      if (events.kind[event] === EventKind.SegmentAlloc) placement.expect(events.address[event]!, events.size[event]!, false);
    }
    for (const addresses of placement.plain.values()) addresses.reverse();
    return placement;
  }

  /** A recorded segment, or the first pages of an expandable one. Of equal sizes the last one is used first. */
  expect(address: number, size: number, expandable: boolean): void {
    if (expandable) {
      this.expandable.push(address);
      return;
    }
    const addresses = this.plain.get(size);
    if (addresses) addresses.push(address);
    else this.plain.set(size, [address]);
  }

  clear(): void {
    this.plain.clear();
    this.expandable = [];
  }

  malloc(bytes: number): number {
    const addresses = this.plain.get(bytes);
    for (let address = addresses?.pop(); address !== undefined; address = addresses?.pop()) if (this.hold(address, bytes)) return address;
    const address = this.invented.malloc(bytes);
    this.hold(address, bytes);
    return address;
  }

  freed(address: number): void {
    const at = this.firstFrom(address);
    if (this.begins[at] !== address) return;
    this.begins.splice(at, 1);
    this.ends.splice(at, 1);
  }

  /** A new expandable segment begins where its first pages are mapped. */
  reserve(bytes: number): number {
    return this.expandable.shift() ?? this.invented.reserve(bytes);
  }

  /** Returns false if part of it is held: if events were lost, segments lie in one another. */
  private hold(address: number, bytes: number): boolean {
    const at = this.firstFrom(address);
    if ((this.begins[at] ?? Number.POSITIVE_INFINITY) < address + bytes || (this.ends[at - 1] ?? 0) > address) return false;
    this.begins.splice(at, 0, address);
    this.ends.splice(at, 0, address + bytes);
    return true;
  }

  /** Place of the first held range that begins at or after the address. */
  private firstFrom(address: number): number {
    let low = 0;
    let high = this.begins.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.begins[middle]! < address) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
