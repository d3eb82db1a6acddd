// Decides whether the buffers fit into a capacity: a depth-first search over layouts in which every buffer rests on another.
// It follows minimalloc (canonical placements, a floor per section), with a branching rule that needs no global order.
//
// The search takes the buffer that can lie lowest. Either it is placed where it rests, on the placed buffers. Or it is
// *blocked*: it ends up higher, resting on a neighbour that is not placed yet. Being lowest, none can still get below it.
//
// Every bound keeps its *reason*, the placed buffers it follows from. When a branch fails, the search returns to the last
// placement that is a reason of the failure. It skips those between, most of which are far away in time.
import { Reasons, wordsFor } from './exact-reasons.ts';
import type { ExactTables } from './exact-tables.ts';
import { Change, Trail } from './exact-trail.ts';
import { alignUp } from './instance.ts';

export interface ExactOptions {
  /** Order among buffers that can lie equally low: rank by buffer, lowest first. */
  readonly rank: Int32Array;
  /** Most placements to try. */
  readonly nodeLimit: number;
  /** Polled every few milliseconds. */
  readonly shouldStop?: (() => boolean) | undefined;
}

export type ExactOutcome = 'found' | 'impossible' | 'undecided';

const NONE = -1;
/** Blocked buffers can raise each other again and again by their sizes. More than this is not worth the time. */
const MAX_RAISES = 50;
/** Neighbours examined between two polls of `shouldStop`: some milliseconds. */
const POLL_WORK = 1 << 21;

export class ExactSearch {
  /** Valid after `run` returned 'found'. */
  readonly offsets: Float64Array;
  nodes = 0;
  private readonly tables: ExactTables;
  private readonly capacity: number;
  private readonly options: ExactOptions;
  private readonly size: Float64Array;
  private readonly placed: Uint8Array;
  /** Lower bound of the buffer's offset in all layouts below this node. */
  private readonly least: Float64Array;
  /** Offset of the buffer if it lay on the buffers placed now. */
  private readonly rest: Float64Array;
  /** The rest at which the buffer was blocked. It stays blocked while it rests there. */
  private readonly blockedAt: Float64Array;
  private readonly remaining: Float64Array;
  private readonly remainingCount: Int32Array;
  /** The member of each section with the smallest `least`. */
  private readonly witness: Int32Array;
  /** Number of unplaced buffers that cross from section s - 1 to s. */
  private readonly crossing: Int32Array;
  private readonly hullLow: Int32Array;
  private readonly hullHigh: Int32Array;
  private readonly byRank: Int32Array;
  /** Number of failed branches by section. Later searches begin with the sections that failed most. */
  readonly trouble: Float64Array;
  private readonly trail: Trail;
  private readonly dirty: Int32Array;
  private readonly isDirty: Uint8Array;
  private dirtyCount = 0;
  private readonly reasons: Reasons;
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
    this.trail = new Trail(64 + 2 * (count + sections) + tables.neighbours.list.length, wordsFor(count));
    this.reasons = new Reasons(count, this.trail);
    this.isDirty = new Uint8Array(sections);
  }

  run(): ExactOutcome {
    for (const load of this.tables.instance.load) if (load > this.capacity) return 'impossible';
    if (this.tables.instance.hasFixed) return 'undecided';
    const found = this.solve(0, this.tables.instance.sections);
    if (found) return 'found';
    return this.stopped ? 'undecided' : 'impossible';
  }

  /** Places all buffers between two sections. Returns false if that is impossible; the caller undoes the changes. */
  private solve(low: number, high: number): boolean {
    const { crossing } = this;
    for (;;) {
      let first = low;
      while (first < high && this.remainingCount[first] === 0) first++;
      if (first >= high) return true;
      let cut = first + 1;
      while (cut < high && crossing[cut]! > 0) cut++;
      if (cut < high) {
        // No buffer crosses the cut, so the sides are independent: if one fails, retrying the other cannot help.
        return this.solve(first, cut) && this.solve(cut, high);
      }
      const buffer = this.lowest(first, high);
      if (buffer === NONE) return this.failBetween(first, high);
      const mark = this.trail.length;
      if (this.place(buffer) && this.solve(first, high)) return true;
      this.undo(mark);
      if (this.stopped) return false;
      if (!this.reasons.takeFromConflict(buffer) || !this.block(buffer)) return false;
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
    for (let at = start[buffer]!; at < start[buffer + 1]!; at++) {
      const other = list[at]!;
      if (placed[other] !== 0) continue;
      // The bound of `other` proves that it lies above. If the bound of a blocked buffer lags behind, only all
      // placements so far prove it.
      if (least[other]! + size[other]! <= rest[buffer]!) this.blameAll(other);
      this.reasons.add(other, buffer);
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

  /** Decides that the buffer, and its twins, lie higher than where they rest now. */
  private block(buffer: number): boolean {
    const { placed, rest, blockedAt, least, size, capacity } = this;
    const { nextTwin } = this.tables;
    const at = rest[buffer]!;
    for (let twin = buffer; twin !== NONE; twin = nextTwin[twin]!) {
      if (placed[twin] !== 0 || rest[twin] !== at) continue;
      this.trail.push(Change.Blocked, twin, blockedAt[twin]!);
      blockedAt[twin] = at;
      this.reasons.save(twin);
      this.reasons.addConflict(twin);
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

  /** The lowest top that an unplaced neighbour can have. A blocked buffer lies there or higher. */
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

  /** Adds the reasons of all neighbours that could carry the blocked buffer: its bound follows from their bounds. */
  private blameSupport(buffer: number, bound: number): void {
    const { placed, size } = this;
    const { start, list } = this.tables.neighbours;
    this.work += (start[buffer + 1]! - start[buffer]!) * wordsFor(placed.length);
    this.reasons.save(buffer);
    for (let at = start[buffer]!; at < start[buffer + 1]!; at++) {
      const other = list[at]!;
      if (placed[other] === 0 && size[other]! < bound) this.reasons.addReasonOf(buffer, other);
    }
  }

  private blameAll(buffer: number): void {
    this.reasons.save(buffer);
    this.reasons.addAllPlaced(buffer, this.placed);
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

  /** Recomputes the floor of every changed section. Returns false if the unplaced buffers of one no longer fit above it. */
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
        // The floor rests on a bound that may have risen since it was computed.
        const bound = this.support(lowest);
        if (bound <= floor) break;
        this.blameSupport(lowest, bound);
        this.raise(lowest, bound);
        if (bound + size[lowest]! > capacity) return this.failAt(lowest);
      }
    }
    return true;
  }

  /** The unplaced buffers of a section do not fit. The reasons of all of them are the conflict. */
  private fail(section: number): false {
    const { placed } = this;
    const { memberStart, members } = this.tables;
    this.trouble[section] = this.trouble[section]! + 1;
    this.reasons.clearConflict();
    for (let at = memberStart[section]!; at < memberStart[section + 1]!; at++) {
      if (placed[members[at]!] === 0) this.reasons.addToConflict(members[at]!);
    }
    return this.forgetDirty();
  }

  /** A buffer has no offset below the capacity. */
  private failAt(buffer: number): false {
    const { sectionStart, sectionsOf } = this.tables;
    const section = sectionsOf[sectionStart[buffer]!]!;
    this.trouble[section] = this.trouble[section]! + 1;
    this.reasons.clearConflict();
    this.reasons.addToConflict(buffer);
    return this.forgetDirty();
  }

  /** All unplaced buffers between two sections are blocked. */
  private failBetween(low: number, high: number): false {
    this.reasons.clearConflict();
    for (let buffer = 0; buffer < this.placed.length; buffer++) {
      if (this.placed[buffer] === 0 && this.hullLow[buffer]! >= low && this.hullLow[buffer]! < high) this.reasons.addToConflict(buffer);
    }
    return false;
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
          this.reasons.restore(index);
          break;
        case Change.Witness:
          this.witness[index] = value;
          break;
      }
    }
  }

  private takeBack(buffer: number): void {
    const { placed, reasons, size, remaining, remainingCount, crossing } = this;
    const { sectionStart, sectionsOf, neighbours } = this.tables;
    placed[buffer] = 0;
    for (let at = neighbours.start[buffer]!; at < neighbours.start[buffer + 1]!; at++) {
      const other = neighbours.list[at]!;
      if (placed[other] === 0) reasons.remove(other, buffer);
    }
    for (let at = sectionStart[buffer]!; at < sectionStart[buffer + 1]!; at++) {
      const section = sectionsOf[at]!;
      remaining[section] = remaining[section]! + size[buffer]!;
      remainingCount[section] = remainingCount[section]! + 1;
    }
    for (let section = this.hullLow[buffer]! + 1; section < this.hullHigh[buffer]!; section++) crossing[section] = crossing[section]! + 1;
  }
}
