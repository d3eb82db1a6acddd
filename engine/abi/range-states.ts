// The states of a range by number. Snapshots contain them, so a number never changes its meaning.

/** What a range is. */
export namespace State {
  export const Free: u8 = 1;
  /** Part of a block that was given out. The first range of a block has this state, the others are Pieces. */
  export const Live: u8 = 2;
  /** Freed by the program, but perhaps still in use on the GPU. */
  export const Pending: u8 = 3;
  /** Addresses without memory. */
  export const Unbacked: u8 = 4;
  /** A further range of a block that consists of several. */
  export const Piece: u8 = 5;
  /** Carved out of an arena of large requests as a slab for small ones. */
  export const Carved: u8 = 6;
  /** Mapped without access, and the driver refused to unmap it. emptyCache() tries again. */
  export const Stuck: u8 = 7;
  /** Freed and complete, but streams recorded on it have not passed its release. The engine completes it later. */
  export const Parked: u8 = 8;
  /** A handle lent to plans (plans/memory.ts). */
  export const Planned: u8 = 9;
}
