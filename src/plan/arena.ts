// The memory behind a plan: one range of addresses, given physical memory piece by piece where the plan is first used.
// So a plan that is taken up in mid-run does not ask for everything while the old allocator still holds half of it.
import { MIB, roundUp } from '../base/bytes.ts';
import { type Device, NO_MEMORY } from '../device/device.ts';

/** Large enough that mapping costs little, small enough that a half-used arena is half the size. */
const PIECE: number = 32 * MIB;
const GRANULE: number = 2 * MIB;

export class Arena {
  reservedBytes = 0;
  private readonly device: Device;
  private readonly bytes: number;
  private readonly handles: Int32Array;
  private base: number = NO_MEMORY;

  constructor(device: Device, bytes: number) {
    this.device = device;
    this.bytes = roundUp(bytes, GRANULE);
    this.handles = new Int32Array(Math.ceil(this.bytes / PIECE)).fill(NO_MEMORY);
  }

  get address(): number {
    return this.base;
  }

  /** Bytes still to be taken from the device before the range can be used. */
  missing(offset: number, size: number): number {
    let missing = 0;
    for (let piece = Math.floor(offset / PIECE); piece * PIECE < offset + size; piece++) {
      if (this.handles[piece] === NO_MEMORY) missing += this.sizeOf(piece);
    }
    return missing;
  }

  /** Backs a range with memory; false, and no more than before, when the device has none left. */
  back(offset: number, size: number): boolean {
    if (this.base < 0) this.base = this.device.reserve(this.bytes);
    if (this.base < 0) return false;
    for (let piece = Math.floor(offset / PIECE); piece * PIECE < offset + size; piece++) {
      if (this.handles[piece] !== NO_MEMORY) continue;
      const handle = this.device.create(this.sizeOf(piece));
      if (handle === NO_MEMORY) return false;
      this.handles[piece] = handle;
      this.device.map(this.base + piece * PIECE, handle);
      this.device.setAccess(this.base + piece * PIECE, this.sizeOf(piece));
      this.reservedBytes += this.sizeOf(piece);
    }
    return true;
  }

  /** Gives everything back; nothing may lie in the arena. */
  release(): void {
    if (this.base < 0) return;
    this.handles.forEach((handle, piece) => {
      if (handle === NO_MEMORY) return;
      this.device.unmap(this.base + piece * PIECE, this.sizeOf(piece));
      this.device.release(handle);
      this.handles[piece] = NO_MEMORY;
    });
    this.device.unreserve(this.base, this.bytes);
    this.base = NO_MEMORY;
    this.reservedBytes = 0;
  }

  private sizeOf(piece: number): number {
    return Math.min(PIECE, this.bytes - piece * PIECE);
  }
}
