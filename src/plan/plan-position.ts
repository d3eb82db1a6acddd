// Where in its plan a running program is, from the requests it makes: in step, off by one, or lost.
// One extra or missing request must not shift every later one, so the last few requests are looked up in the plan.
import type { StepBlock } from './step.ts';

/** A place is found again from this many requests in a row. */
const CONTEXT = 6;

export class PlanPosition {
  /** The request expected next. */
  private next = 0;
  private last = -1;
  private turn = 0;
  private matched = 0;
  private previousShare = 0;
  private readonly blocks: readonly StepBlock[];
  private readonly turns: number;
  private readonly symbols: Int32Array;
  private readonly symbolOf = new Map<string, number>();
  /** Places after which the plan has made a given sequence of requests. */
  private readonly placesAfter = new Map<string, number[]>();
  private readonly recent: number[] = [];

  constructor(blocks: readonly StepBlock[], turns: number) {
    this.blocks = blocks;
    this.turns = turns;
    this.symbols = Int32Array.from(blocks, (block) => this.intern(block.size, block.stream));
    const context = Math.min(CONTEXT, blocks.length);
    for (let last = 0; last < blocks.length; last++) {
      const key = Array.from(
        { length: context },
        (_, back) => this.symbols[(last - context + 1 + back + blocks.length) % blocks.length]!,
      ).join();
      this.placesAfter.set(key, [...(this.placesAfter.get(key) ?? []), last]);
    }
  }

  /** Takes note of a request; the block of the plan that it is, or -1. */
  request(size: number, stream: number): number {
    const symbol = this.symbolOf.get(`${size}/${stream}`) ?? -1;
    this.recent.push(symbol);
    if (this.recent.length > CONTEXT) this.recent.shift();
    if (this.symbols[this.next] === symbol) return this.advanceTo(this.next);
    const places = this.placesAfter.get(this.recent.join());
    if (!places) {
      // An extra request: the plan goes on where it was.
      return -1;
    }
    // The nearest place ahead: requests are left out more often than whole steps repeated.
    const ahead = (place: number) => (place - this.next + this.blocks.length) % this.blocks.length;
    return this.advanceTo(places.reduce((best, place) => (ahead(place) < ahead(best) ? place : best)));
  }

  /** The turn of the block that `request` named last. */
  get currentTurn(): number {
    return this.turn;
  }

  private advanceTo(place: number): number {
    if (place <= this.last) {
      this.turn = (this.turn + 1) % this.turns;
      this.previousShare = this.matched / this.blocks.length;
      this.matched = 0;
    }
    this.matched++;
    this.last = place;
    this.next = place + 1 === this.blocks.length ? 0 : place + 1;
    return place;
  }

  /** Share of the plan's requests that were made in the step before this one; 0 in the first. */
  get followedShare(): number {
    return this.previousShare;
  }

  private intern(size: number, stream: number): number {
    const key = `${size}/${stream}`;
    const symbol = this.symbolOf.get(key) ?? this.symbolOf.size;
    this.symbolOf.set(key, symbol);
    return symbol;
  }
}
