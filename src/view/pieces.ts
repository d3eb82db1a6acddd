// The memory that an allocator held from the driver: one row per piece, with its time and its addresses.
import { GRANULARITY } from '../backend/backend.ts';
import { SimulatedBackend } from '../backend/simulated.ts';

const OPEN = -1;

/** Rows of pieces. A piece that is freed in parts becomes several rows. */
export class PieceLog {
  readonly address: number[] = [];
  readonly size: number[] = [];
  /** Events that took and freed the piece; `OPEN` until it is freed. */
  readonly from: number[] = [];
  readonly to: number[] = [];
  /** Whether the piece was mapped; a block may span mapped neighbours. */
  readonly mapped: boolean[] = [];
  /** The current event. */
  now = -1;
  private readonly open = new Map<number, number>();

  take(address: number, size: number, mapped: boolean): void {
    this.open.set(address, this.add(address, size, this.now, mapped));
  }

  giveBack(address: number, size: number): void {
    const end = address + size;
    let at = address;
    while (at < end) {
      const row = this.open.get(at);
      if (row === undefined || at + this.size[row]! > end) break;
      this.close(row);
      at += this.size[row]!;
    }
    if (at < end) this.cutOut(at, end);
  }

  /** Ends all pieces that are still held. */
  finish(event: number): void {
    for (const row of [...this.open.values()]) {
      this.close(row);
      this.to[row] = event;
    }
  }

  /** Slow path: a range that does not begin or end with a piece. */
  private cutOut(from: number, to: number): void {
    for (const row of [...this.open.values()]) {
      const start = this.address[row]!;
      const end = start + this.size[row]!;
      if (end <= from || start >= to) continue;
      this.close(row);
      if (start < from) this.open.set(start, this.add(start, from - start, this.now, this.mapped[row]!));
      if (end > to) this.open.set(to, this.add(to, end - to, this.now, this.mapped[row]!));
    }
  }

  private add(address: number, size: number, from: number, mapped: boolean): number {
    this.address.push(address);
    this.size.push(size);
    this.from.push(from);
    this.to.push(OPEN);
    return this.mapped.push(mapped) - 1;
  }

  private close(row: number): void {
    this.to[row] = this.now;
    this.open.delete(this.address[row]!);
  }
}

/** Unit of the page table. Physical memory is mapped in multiples of it. */
const PAGE: number = GRANULARITY;
/** Far above any address: homes for memory whose first address now belongs to other memory. */
const SPARE_HOMES = 2 ** 50;

/**
 * A simulated GPU that records what it gives out. Memory mapped at several addresses is one piece. Its home is the address
 * of its first mapping, and `homesOf` returns the homes behind any range of addresses.
 */
export class WatchedBackend extends SimulatedBackend {
  readonly pieces: PieceLog = new PieceLog();
  private readonly known: { readonly bytes: number; home: number | undefined }[] = [];
  private readonly taken = new Set<number>();
  /** Home by page. Entries of unmapped pages stay: nothing asks for them until they are mapped again. */
  private readonly pages = new Map<number, number>();
  private spare = SPARE_HOMES;

  override malloc(bytes: number): number {
    const address = super.malloc(bytes);
    if (address >= 0) this.pieces.take(address, bytes, false);
    return address;
  }

  override free(address: number, bytes: number): void {
    super.free(address, bytes);
    this.pieces.giveBack(address, bytes);
  }

  override create(bytes: number): number {
    const handle = super.create(bytes);
    if (handle >= 0) this.known[handle] = { bytes, home: undefined };
    return handle;
  }

  override release(handle: number): boolean {
    const released = super.release(handle);
    const { bytes, home } = this.known[handle]!;
    if (released && home !== undefined) {
      this.pieces.giveBack(home, bytes);
      this.taken.delete(home);
    }
    return released;
  }

  override map(address: number, handle: number): boolean {
    const mapped = super.map(address, handle);
    if (!mapped) return false;
    const entry = this.known[handle]!;
    entry.home ??= this.newHome(address, entry.bytes);
    for (let offset = 0; offset < entry.bytes; offset += PAGE) this.pages.set((address + offset) / PAGE, entry.home + offset);
    return true;
  }

  /** Start and size of each extent of homes behind a range, by address; undefined: the range is its own home. */
  homesOf(address: number, size: number): number[] | undefined {
    const runs: number[] = [];
    for (let at = address; at < address + size; ) {
      const page = Math.floor(at / PAGE);
      const base = this.pages.get(page);
      if (base === undefined) return undefined;
      const start = base + (at - page * PAGE);
      const length = Math.min((page + 1) * PAGE, address + size) - at;
      const last = runs.length - 2;
      if (last >= 0 && runs[last]! + runs[last + 1]! === start) runs[last + 1]! += length;
      else runs.push(start, length);
      at += length;
    }
    return runs.length === 2 && runs[0] === address ? undefined : runs;
  }

  private newHome(address: number, bytes: number): number {
    let home = address;
    if (this.taken.has(address)) {
      home = this.spare;
      this.spare += bytes;
    }
    this.taken.add(home);
    this.pieces.take(home, bytes, true);
    return home;
  }
}
