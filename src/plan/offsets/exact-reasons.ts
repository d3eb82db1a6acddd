// Why the exact search believes its bounds: for each unplaced buffer, the placed buffers its bound follows from.
// The conflict is the same for the last failed branch. All are sets with one bit per buffer, in one flat array.
import type { Trail } from './exact-trail.ts';

/** 32-bit words of a set of `count` buffers. */
export function wordsFor(count: number): number {
  return (count + 31) >> 5;
}

export class Reasons {
  private readonly words: number;
  private readonly rows: Int32Array;
  private readonly conflict: Int32Array;
  private readonly trail: Trail;

  constructor(count: number, trail: Trail) {
    this.words = wordsFor(count);
    this.rows = new Int32Array(count * this.words);
    this.conflict = new Int32Array(this.words);
    this.trail = trail;
  }

  /** Adds one placed buffer to the reason. Not in the trail: undoing the placement calls `remove`. */
  add(buffer: number, placed: number): void {
    const at = buffer * this.words + (placed >> 5);
    this.rows[at] = this.rows[at]! | (1 << (placed & 31));
  }

  remove(buffer: number, placed: number): void {
    const at = buffer * this.words + (placed >> 5);
    this.rows[at] = this.rows[at]! & ~(1 << (placed & 31));
  }

  /** Saves the reason in the trail, before a change that `restore` undoes. */
  save(buffer: number): void {
    this.trail.pushRow(buffer, this.rows);
  }

  /** Restores the reason that the trail returned last. */
  restore(buffer: number): void {
    this.trail.popRow(buffer, this.rows);
  }

  addAllPlaced(buffer: number, placed: Uint8Array): void {
    for (let other = 0; other < placed.length; other++) if (placed[other] !== 0) this.add(buffer, other);
  }

  addReasonOf(buffer: number, other: number): void {
    const { rows, words } = this;
    for (let word = 0, to = buffer * words, from = other * words; word < words; word++)
      rows[to + word] = rows[to + word]! | rows[from + word]!;
  }

  addConflict(buffer: number): void {
    const { rows, words, conflict } = this;
    for (let word = 0, to = buffer * words; word < words; word++) rows[to + word] = rows[to + word]! | conflict[word]!;
  }

  clearConflict(): void {
    this.conflict.fill(0);
  }

  addToConflict(buffer: number): void {
    const { rows, words, conflict } = this;
    for (let word = 0, from = buffer * words; word < words; word++) conflict[word] = conflict[word]! | rows[from + word]!;
  }

  /** Removes a placed buffer from the conflict. Returns whether it was in it. */
  takeFromConflict(placed: number): boolean {
    const word = placed >> 5;
    const bit = 1 << (placed & 31);
    const had = (this.conflict[word]! & bit) !== 0;
    this.conflict[word] = this.conflict[word]! & ~bit;
    return had;
  }
}
