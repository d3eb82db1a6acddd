// A small seeded generator (mulberry32): the same seed gives the same inputs on every machine.

export class Random {
  private state: number;
  constructor(seed: number) {
    this.state = seed | 0;
  }

  next(): number {
    this.state = (this.state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  below(limit: number): number {
    return Math.floor(this.next() * limit);
  }

  /** True in this share of all calls. */
  chance(share: number): boolean {
    return this.next() < share;
  }

  pick<Item>(items: readonly Item[]): Item {
    return items[this.below(items.length)]!;
  }
}

/** The generator of one input: the same three values always make the same input. */
export function randomOf(target: string, seed: number, number: number): Random {
  let state = Math.imul(seed ^ 0x5bd1e995, 0x9e3779b1);
  for (let at = 0; at < target.length; at++) state = Math.imul(state ^ target.charCodeAt(at), 0x01000193);
  state = Math.imul(state ^ number, 0x85ebca6b);
  return new Random(state ^ (state >>> 15) ^ number);
}
