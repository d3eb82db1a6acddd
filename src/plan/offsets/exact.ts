// Decides whether the buffers fit into a capacity, by depth-first search over layouts in which every buffer rests on another.
// In the line of minimalloc (canonical placements, a floor per section), with one branching rule that needs no global order.
//
// A buffer b that rests on what is placed is either placed right there, or it is *blocked*: it ends up higher, and then
// rests on a neighbour that is not placed yet. The lowest buffer is asked first, so that none can still get below it.
//
// Every bound keeps its *reason*, the placed buffers it follows from. When a branch fails, the search goes back to the last
// placement that had a part in the failure and skips those between: most have nothing to do with it, being far away in time.
import type { ExactTables } from './exact-tables.ts';
import { Change, Trail } from './exact-trail.ts';
import { alignUp } from './instance.ts';

export interface ExactOptions {
  /** Which buffer is asked first among equals: rank by buffer, lowest first. */
  readonly rank: Int32Array;
  /** Give up after so many placements. */
  readonly nodeLimit: number;
  /** Asked every few milliseconds. */
  readonly shouldStop?: (() => boolean) | undefined;
}

export type ExactOutcome = 'found' | 'impossible' | 'undecided';

const NONE = -1;
/** Blocked buffers can raise each other by their sizes over and over; beyond this the gain is not worth it. */
const MAX_RAISES = 50;
/** Neighbours looked at between two questions whether to stop: some milliseconds. */
const POLL_WORK = 1 << 21;

export class ExactSearch {
  /** Valid after `run` has said 'found'. */
  readonly offsets: Float64Array;
  nodes = 0;
  private readonly tables: ExactTables;
  private readonly capacity: number;
  private readonly options: ExactOptions;
  private readonly size: Float64Array;
  private readonly placed: Uint8Array;
  /** No layout found below this node puts the buffer lower. */
  private readonly least: Float64Array;
  /** Where the buffer would lie on what is placed now. */
  private readonly rest: Float64Array;
  /** The rest at which the buffer was blocked; it is blocked as long as it rests there. */
  private readonly blockedAt: Float64Array;
  private readonly remaining: Float64Array;
  private readonly remainingCount: Int32Array;
  /** The member of a section with the smallest `least`. */
  private readonly witness: Int32Array;
  /** Buffers not placed that cross from section s - 1 to s. */
  private readonly crossing: Int32Array;
  private readonly hullLow: Int32Array;
  private readonly hullHigh: Int32Array;
  private readonly byRank: Int32Array;
  /** How often a section was where a branch failed; the search turns to troublesome sections first. */
  readonly trouble: Float64Array;
  private readonly trail: Trail;
  private readonly dirty: Int32Array;
  private readonly isDirty: Uint8Array;
  private dirtyCount = 0;
  /** For each buffer not placed, a set of placed ones that its bound follows from; one bit per buffer. */
  private readonly reason: Int32Array;
  private readonly words: number;
  /** The placements that the last failure follows from. */
  private readonly conflict: Int32Array;
  private stopped = false;
  private work = 0;

  constructor(tables: ExactTables, capacity: number, options: ExactOptions) {
    const { count, sections, size, load, spanStart, spanLow, spanHigh, alignment } = tables.instance;
    this.tables = tables;
    this.capacity = capacity;
    this.options = options;
    this.size = size;
    this.offsets = new Float64Array(count).fill(NONE);
    this.placed = new Uint8Array(count);
    this.least = new Float64Array(count);
    this.rest = new Float64Array(count);
    this.blockedAt = new Float64Array(count).fill(NONE);
    this.remaining = load.slice();
    this.remainingCount = new Int32Array(sections);
    this.witness = new Int32Array(sections);
    for (let section = 0; section < sections; section++) {
      this.remainingCount[section] = tables.memberStart[section + 1]! - tables.memberStart[section]!;
      this.witness[section] = tables.members[tables.memberStart[section]!]!;
    }
    this.crossing = new Int32Array(sections + 1);
    this.hullLow = new Int32Array(count);
    this.hullHigh = new Int32Array(count);
    for (let buffer = 0; buffer < count; buffer++) {
      this.hullLow[buffer] = spanLow[spanStart[buffer]!]!;
      this.hullHigh[buffer] = spanHigh[spanStart[buffer + 1]! - 1]!;
      for (let section = this.hullLow[buffer]! + 1; section < this.hullHigh[buffer]!; section++)
        this.crossing[section] = this.crossing[section]! + 1;
      if (alignment[buffer]! < 1) throw new RangeError('alignment below 1');
    }
    this.byRank = new Int32Array(count);
    options.rank.forEach((rank, buffer) => {
      this.byRank[rank] = buffer;
    });
    this.trouble = new Float64Array(sections);
    this.dirty = new Int32Array(sections);
    this.words = (count + 31) >> 5;
    this.reason = new Int32Array(count * this.words);
    this.conflict = new Int32Array(this.words);
    this.trail = new Trail(64 + 2 * (count + sections) + tables.neighbours.list.length, this.words);
    this.isDirty = new Uint8Array(sections);
  }

  run(): ExactOutcome {
    for (const load of this.tables.instance.load) if (load > this.capacity) return 'impossible';
    if (this.tables.instance.hasFixed) return 'undecided';
    const found = this.solve(0, this.tables.instance.sections);
    if (found) return 'found';
    return this.stopped ? 'undecided' : 'impossible';
  }

  /** Places all buffers between two sections; false if that cannot be. The caller takes changes back. */
  private solve(low: number, high: number): boolean {
    const { crossing } = this;
    for (;;) {
      let first = low;
      while (first < high && this.remainingCount[first] === 0) first++;
      if (first >= high) return true;
      let cut = first + 1;
      while (cut < high && crossing[cut]! > 0) cut++;
      if (cut < high) {
        // Nothing crosses the cut: the sides do not concern each other, so a failure on one need not be retried on the other.
        return this.solve(first, cut) && this.solve(cut, high);
      }
      const buffer = this.lowest(first, high);
      if (buffer === NONE) return this.failBetween(first, high);
      const mark = this.trail.length;
      if (this.place(buffer) && this.solve(first, high)) return true;
      this.undo(mark);
      if (this.stopped) return false;
      const { conflict } = this;
      const word = buffer >> 5;
      const bit = 1 << (buffer & 31);
      if ((conflict[word]! & bit) === 0) return false;
      conflict[word] = conflict[word]! & ~bit;
      if (!this.block(buffer)) return false;
      low = first;
    }
  }

  private lowest(low: number, high: number): number {
    const { byRank, placed, least, rest, blockedAt, hullLow } = this;
    let best = NONE;
    let bestLeast = Number.POSITIVE_INFINITY;
    for (let at = 0; at < byRank.length; at++) {
      const buffer = byRank[at]!;
      if (placed[buffer] !== 0 || least[buffer]! >= bestLeast) continue;
      if (hullLow[buffer]! < low || hullLow[buffer]! >= high || blockedAt[buffer] === rest[buffer]) continue;
      best = buffer;
      bestLeast = least[buffer]!;
    }
    return best;
  }

  private place(buffer: number): boolean {
    if (this.work > POLL_WORK) {
      this.work = 0;
      if (this.options.shouldStop?.()) this.stopped = true;
    }
    if (++this.nodes > this.options.nodeLimit) this.stopped = true;
    if (this.stopped) return false;
    const { placed, least, rest, size, capacity, remaining, remainingCount, crossing } = this;
    const { alignment } = this.tables.instance;
    const { start, list } = this.tables.neighbours;
    const { sectionStart, sectionsOf } = this.tables;
    this.work += 8 * (start[buffer + 1]! - start[buffer]!);
    const top = rest[buffer]! + size[buffer]!;
    this.offsets[buffer] = rest[buffer]!;
    this.trail.push(Change.Placed, buffer, 0);
    placed[buffer] = 1;
    for (let at = sectionStart[buffer]!; at < sectionStart[buffer + 1]!; at++) {
      const section = sectionsOf[at]!;
      remaining[section] = remaining[section]! - size[buffer]!;
      remainingCount[section] = remainingCount[section]! - 1;
      this.touch(section);
    }
    for (let section = this.hullLow[buffer]! + 1; section < this.hullHigh[buffer]!; section++) crossing[section] = crossing[section]! - 1;
    const { reason, words } = this;
    const word = buffer >> 5;
    const bit = 1 << (buffer & 31);
    for (let at = start[buffer]!; at < start[buffer + 1]!; at++) {
      const other = list[at]!;
      if (placed[other] !== 0) continue;
      // That it lies above follows from its bound; where the bound of a blocked buffer lags behind, from all that was done so far.
      if (least[other]! + size[other]! <= rest[buffer]!) this.blameAll(other);
      reason[other * words + word] = reason[other * words + word]! | bit;
    }
    for (let at = start[buffer]!; at < start[buffer + 1]!; at++) {
      const other = list[at]!;
      if (placed[other] !== 0 || rest[other]! >= top) continue;
      const raised = alignUp(top, alignment[other]!);
      this.trail.push(Change.Rest, other, rest[other]!);
      rest[other] = raised;
      if (raised > least[other]!) {
        this.raise(other, raised);
        if (raised + size[other]! > capacity) return this.failAt(other);
      }
    }
    return this.settle();
  }

  /** The buffer, and all like it, will lie higher than where it rests now. */
  private block(buffer: number): boolean {
    const { placed, rest, blockedAt, least, size, capacity, reason, conflict, words } = this;
    const { nextTwin } = this.tables;
    const at = rest[buffer]!;
    for (let twin = buffer; twin !== NONE; twin = nextTwin[twin]!) {
      if (placed[twin] !== 0 || rest[twin] !== at) continue;
      this.trail.push(Change.Blocked, twin, blockedAt[twin]!);
      blockedAt[twin] = at;
      this.trail.pushRow(twin, reason);
      for (let word = 0; word < words; word++) reason[twin * words + word] = reason[twin * words + word]! | conflict[word]!;
    }
    for (let twin = buffer; twin !== NONE; twin = nextTwin[twin]!) {
      if (placed[twin] !== 0 || blockedAt[twin] !== rest[twin]) continue;
      const bound = this.support(twin);
      if (bound <= least[twin]!) continue;
      this.blameSupport(twin, bound);
      this.raise(twin, bound);
      if (bound + size[twin]! > capacity) return this.failAt(twin);
    }
    return this.settle();
  }

  /** The lowest top that any neighbour not yet placed can have: a blocked buffer lies there or higher. */
  private support(buffer: number): number {
    const { placed, least, size } = this;
    const { start, list } = this.tables.neighbours;
    let bound = Number.POSITIVE_INFINITY;
    this.work += start[buffer + 1]! - start[buffer]!;
    for (let at = start[buffer]!; at < start[buffer + 1]!; at++) {
      const other = list[at]!;
      if (placed[other] !== 0) continue;
      const top = least[other]! + size[other]!;
      if (top < bound) bound = top;
    }
    return alignUp(bound, this.tables.instance.alignment[buffer]!);
  }

  /** The bound of a blocked buffer follows from the bounds of all neighbours that could carry it. */
  private blameSupport(buffer: number, bound: number): void {
    const { placed, size, reason, words } = this;
    const { start, list } = this.tables.neighbours;
    this.work += (start[buffer + 1]! - start[buffer]!) * words;
    this.trail.pushRow(buffer, reason);
    const row = buffer * words;
    for (let at = start[buffer]!; at < start[buffer + 1]!; at++) {
      const other = list[at]!;
      if (placed[other] !== 0 || size[other]! >= bound) continue;
      for (let word = 0, from = other * words; word < words; word++) reason[row + word] = reason[row + word]! | reason[from + word]!;
    }
  }

  private blameAll(buffer: number): void {
    const { placed, reason, words } = this;
    this.trail.pushRow(buffer, reason);
    for (let other = 0; other < placed.length; other++) {
      if (placed[other] !== 0) reason[buffer * words + (other >> 5)] = reason[buffer * words + (other >> 5)]! | (1 << (other & 31));
    }
  }

  private raise(buffer: number, least: number): void {
    const { sectionStart, sectionsOf } = this.tables;
    const { witness } = this;
    this.trail.push(Change.Least, buffer, this.least[buffer]!);
    this.least[buffer] = least;
    for (let at = sectionStart[buffer]!; at < sectionStart[buffer + 1]!; at++) {
      if (witness[sectionsOf[at]!] === buffer) this.touch(sectionsOf[at]!);
    }
  }

  private touch(section: number): void {
    if (this.isDirty[section] !== 0) return;
    this.isDirty[section] = 1;
    this.dirty[this.dirtyCount++] = section;
  }

  /** Finds the floor of every section that may have changed; false if what remains in one no longer fits above it. */
  private settle(): boolean {
    const { placed, least, remaining, remainingCount, witness, capacity, size } = this;
    const { memberStart, members } = this.tables;
    let raises = 0;
    while (this.dirtyCount > 0) {
      const section = this.dirty[--this.dirtyCount]!;
      this.isDirty[section] = 0;
      if (remainingCount[section] === 0) continue;
      for (;;) {
        let lowest = NONE;
        let floor = Number.POSITIVE_INFINITY;
        for (let at = memberStart[section]!; at < memberStart[section + 1]!; at++) {
          const member = members[at]!;
          if (placed[member] !== 0 || least[member]! >= floor) continue;
          floor = least[member]!;
          lowest = member;
        }
        if (witness[section] !== lowest) {
          this.trail.push(Change.Witness, section, witness[section]!);
          witness[section] = lowest;
        }
        if (floor + remaining[section]! > capacity) return this.fail(section);
        if (this.blockedAt[lowest] !== this.rest[lowest] || raises++ >= MAX_RAISES) break;
        // The floor stands on a bound that may have risen since it was computed.
        const bound = this.support(lowest);
        if (bound <= floor) break;
        this.blameSupport(lowest, bound);
        this.raise(lowest, bound);
        if (bound + size[lowest]! > capacity) return this.failAt(lowest);
      }
    }
    return true;
  }

  /** What remains in a section does not fit: because of all that its members follow from. */
  private fail(section: number): false {
    const { placed } = this;
    const { memberStart, members } = this.tables;
    this.trouble[section] = this.trouble[section]! + 1;
    this.conflict.fill(0);
    for (let at = memberStart[section]!; at < memberStart[section + 1]!; at++) {
      if (placed[members[at]!] === 0) this.blame(members[at]!);
    }
    return this.forgetDirty();
  }

  /** A buffer can lie nowhere below the capacity. */
  private failAt(buffer: number): false {
    const { sectionStart, sectionsOf } = this.tables;
    const section = sectionsOf[sectionStart[buffer]!]!;
    this.trouble[section] = this.trouble[section]! + 1;
    this.conflict.fill(0);
    this.blame(buffer);
    return this.forgetDirty();
  }

  /** All that is left between two sections is blocked. */
  private failBetween(low: number, high: number): false {
    this.conflict.fill(0);
    for (let buffer = 0; buffer < this.placed.length; buffer++) {
      if (this.placed[buffer] === 0 && this.hullLow[buffer]! >= low && this.hullLow[buffer]! < high) this.blame(buffer);
    }
    return false;
  }

  private blame(buffer: number): void {
    const { conflict, reason, words } = this;
    for (let word = 0, from = buffer * words; word < words; word++) conflict[word] = conflict[word]! | reason[from + word]!;
  }

  private forgetDirty(): false {
    while (this.dirtyCount > 0) this.isDirty[this.dirty[--this.dirtyCount]!] = 0;
    return false;
  }

  private undo(mark: number): void {
    const { trail } = this;
    while (trail.length > mark) {
      trail.pop();
      const { index, value } = trail;
      switch (trail.kind) {
        case Change.Placed:
          this.takeBack(index);
          break;
        case Change.Rest:
          this.rest[index] = value;
          break;
        case Change.Least:
          this.least[index] = value;
          break;
        case Change.Blocked:
          this.blockedAt[index] = value;
          break;
        case Change.Row:
          trail.popRow(index, this.reason);
          break;
        case Change.Witness:
          this.witness[index] = value;
          break;
      }
    }
  }

  private takeBack(buffer: number): void {
    const { size, remaining, remainingCount, crossing } = this;
    const { sectionStart, sectionsOf } = this.tables;
    this.placed[buffer] = 0;
    this.unblame(buffer);
    for (let at = sectionStart[buffer]!; at < sectionStart[buffer + 1]!; at++) {
      const section = sectionsOf[at]!;
      remaining[section] = remaining[section]! + size[buffer]!;
      remainingCount[section] = remainingCount[section]! + 1;
    }
    for (let section = this.hullLow[buffer]! + 1; section < this.hullHigh[buffer]!; section++) crossing[section] = crossing[section]! + 1;
  }

  private unblame(buffer: number): void {
    const { placed, reason, words } = this;
    const { start, list } = this.tables.neighbours;
    const word = buffer >> 5;
    const others = ~(1 << (buffer & 31));
    for (let at = start[buffer]!; at < start[buffer + 1]!; at++) {
      if (placed[list[at]!] === 0) reason[list[at]! * words + word] = reason[list[at]! * words + word]! & others;
    }
  }
}
