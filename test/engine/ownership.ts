// The reference model: which physical bytes belong to which live block. No byte may belong to two.
import type { Extent, StrictBackend } from './strict-backend.ts';

interface Owned {
  readonly start: number;
  readonly end: number;
}

export class Ownership {
  private readonly byHandle = new Map<number, Owned[]>();
  private readonly extentsOf = new Map<number, Extent[]>();
  private readonly backend: StrictBackend;

  constructor(backend: StrictBackend) {
    this.backend = backend;
  }

  take(block: number, address: number, bytes: number): void {
    const extents = this.backend.resolve(address, bytes);
    for (const { handle, offset, bytes: length } of extents) {
      const owned = this.byHandle.get(handle) ?? [];
      const clash = owned.find(({ start, end }) => offset < end && start < offset + length);
      if (clash) throw new Error(`handle ${handle}: bytes ${offset} to ${offset + length} are in two live blocks`);
      owned.push({ start: offset, end: offset + length });
      this.byHandle.set(handle, owned);
    }
    this.extentsOf.set(block, extents);
  }

  /** The block ends. Its addresses must still lead to the memory they led to at first. */
  drop(block: number, address: number, bytes: number): void {
    const extents = this.extentsOf.get(block)!;
    const now = this.backend.resolve(address, bytes);
    if (JSON.stringify(now) !== JSON.stringify(extents)) throw new Error(`block ${block} has lost its memory`);
    for (const { handle, offset } of extents) {
      const owned = this.byHandle.get(handle)!;
      owned.splice(
        owned.findIndex(({ start }) => start === offset),
        1,
      );
    }
    this.extentsOf.delete(block);
  }
}
