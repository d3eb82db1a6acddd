// The memory an allocator held from the driver over a run: one row per piece, from when to when, at which addresses.
import { SimulatedDevice } from '../device/simulated.ts';

const OPEN = -1;

/** Rows of pieces; a piece that is given back in part becomes several rows. */
export class PieceLog {
  readonly address: number[] = [];
  readonly size: number[] = [];
  /** Event during which the piece was taken, and given back; `OPEN` until then. */
  readonly from: number[] = [];
  readonly to: number[] = [];
  /** Whether pages were mapped here: then neighbours may serve one block together. */
  readonly mapped: boolean[] = [];
  /** The event that is being handled. */
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

  /** Ends what is still held. */
  finish(event: number): void {
    for (const row of [...this.open.values()]) {
      this.close(row);
      this.to[row] = event;
    }
  }

  /** The slow way, for a range that does not begin or end with a piece. */
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

/** A simulated GPU that writes down what is taken from it and where it is mapped. */
export class WatchedDevice extends SimulatedDevice {
  readonly pieces: PieceLog = new PieceLog();
  private readonly handleBytes: number[] = [];

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
    if (handle >= 0) this.handleBytes[handle] = bytes;
    return handle;
  }

  override map(address: number, handle: number): boolean {
    const mapped = super.map(address, handle);
    if (mapped) this.pieces.take(address, this.handleBytes[handle]!, true);
    return mapped;
  }

  override unmap(address: number, bytes: number): boolean {
    const unmapped = super.unmap(address, bytes);
    if (unmapped) this.pieces.giveBack(address, bytes);
    return unmapped;
  }
}
