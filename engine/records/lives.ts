// How long blocks of large requests live. Requests with the same key (policy/neighbours.ts) are a family: its blocks tend to live
// alike. Time is counted in large requests. Lives are for placement only: a wrong one costs memory, never correctness.
import { larger } from '../base/units';
import { fresh, takeClear } from './memory';

/** What is known of a family. */
@unmanaged
export class Family {
  tag: u32 = 0;
  /** How long its last block lived; 0: none has ended. */
  last: u32 = 0;
  /** The longest life. It fades, so that one exception is forgotten. */
  longest: u32 = 0;
  /** Blocks that live. */
  live: u32 = 0;

  /**
   * The family with a key. It takes the place of another with the same place in the table. NO_FAMILY if the engine's own memory is
   * exhausted.
   */
  @inline
  static of(key: u64): Family {
    if (families === 0 && !makeFamilies()) return NO_FAMILY;
    const family = changetype<Family>(families + <usize>(key >> (64 - FAMILY_BITS)) * offsetof<Family>());
    // The high bits of a key depend on all that went into it.
    const tag = <u32>(key >> (64 - FAMILY_BITS - 32)) | 1;
    if (family.tag !== tag) family.restart(tag);
    return family;
  }

  private restart(tag: u32): void {
    this.tag = tag;
    this.last = 0;
    this.longest = 0;
    this.live = 0;
  }

  /**
   * How long its next block is expected to live; 0: unknown. If blocks of the family live already, they are a stack, as of
   * activations layer by layer. All of a stack are expected to live as long as the longest, and as long again: so they lie
   * together, whatever their order.
   */
  @inline
  get expectedLife(): u32 {
    if (this.live === 0) return this.last;
    return this.longest === 0 ? FOREVER : this.longest * 2;
  }

  /** Notes the life of a block that has ended. */
  @inline
  note(age: u32): void {
    const longest = this.longest;
    this.last = age === 0 ? 1 : age;
    this.longest = age >= longest ? age : <u32>larger(longest - longest / FADING, age);
    // Blocks from before the family lost its place and got it again are not counted.
    if (this.live > 0) this.live--;
  }

  /** Begins the life of a block; NO_LIFE if the engine's own memory is exhausted. */
  @inline
  beginLife(expected: u32): Life {
    if (spare === NO_LIFE && !addSpares()) return NO_LIFE;
    const life = spare;
    spare = changetype<Life>(changetype<usize>(life.family));
    this.live++;
    count++;
    life.family = this;
    life.tag = this.tag;
    life.birth = clock;
    life.end = clock + expected;
    return life;
  }
}

/** The life of a block. */
@unmanaged
export class Life {
  family: Family = changetype<Family>(0);
  /** The tag of the family. Another may have its place in the table since. */
  tag: u32 = 0;
  birth: u32 = 0;
  /** When the block is expected to end; the birth: unknown. */
  end: u32 = 0;

  /** The block is freed. Gives how long it lived. */
  @inline
  finish(): u32 {
    const own = this.family;
    const age = clock - this.birth;
    if (own.tag === this.tag) own.note(age);
    count--;
    recycle(this);
    return age;
  }
}

export const NO_FAMILY: Family = changetype<Family>(0);
export const NO_LIFE: Life = changetype<Life>(0);
/** Of a request whose life is not noted. */
export const NO_KEY: u64 = 0;

const FAMILY_BITS: u64 = 12;
const FAMILIES: usize = (<usize>1) << (<usize>FAMILY_BITS);
/** Expected of families that have a live block, and of which none has ended. */
const FOREVER: u32 = 100_000;
/** The longest life fades by this part with every life that ends. */
const FADING: u32 = 10;

let families: usize = 0;
let clock: u32 = 0;
let count: u32 = 0;

/** Unused records, linked by their first field. */
let spare: Life = NO_LIFE;
const SLAB_LIVES: usize = 256;

function recycle(life: Life): void {
  life.family = changetype<Family>(changetype<usize>(spare));
  spare = life;
}

function makeFamilies(): bool {
  families = takeClear(FAMILIES * offsetof<Family>());
  return families !== 0;
}

function addSpares(): bool {
  const slab = fresh(SLAB_LIVES * offsetof<Life>());
  if (slab === 0) return false;
  for (let index = SLAB_LIVES; index > 0; index--) recycle(changetype<Life>(slab + (index - 1) * offsetof<Life>()));
  return true;
}

/** Lives that have not ended. */
export function liveCount(): u32 {
  return count;
}

/** Counts a large request. */
export function countRequest(): void {
  clock++;
}

/** How much longer a block is expected to live; 0: unknown. */
export function remaining(life: Life): u32 {
  if (life === NO_LIFE || life.end === life.birth) return 0;
  const left = <i32>(life.end - clock);
  return left > 0 ? <u32>left : 1;
}
