// The states of a range by number. Snapshots contain them, so a number never changes its meaning.

/** What a range is. Written to snapshots: never renumber. */
export namespace State {
  export const Free: u8 = 1;
  /** Given out. A block is known by its first range. */
  export const Live: u8 = 2;
  /** Freed by the program, perhaps still in use on other streams. */
  export const Pending: u8 = 3;
  /** Addresses without memory. */
  export const Unbacked: u8 = 4;
  /** A further range of a block whose memory lies in several places. */
  export const Piece: u8 = 5;
  /** Lent to the arena of small requests. */
  export const Carved: u8 = 6;
  /** Mapped, but access could not be set nor the mapping undone; given back when the driver allows it. */
  export const Stuck: u8 = 7;
  /** Let go for good, but streams that were recorded on it have not passed its release yet: the engine completes it. */
  export const Parked: u8 = 8;
  /** A handle lent to the memory of plans, where planned blocks lie (see planned-memory.ts). */
  export const Planned: u8 = 9;
}
