// Serves requests that follow a plan from one arena, each at its planned offset if that range is free at that moment;
// everything else goes to an allocator of the usual kind. Occupancy is by address range: what outlives its plan keeps its bytes.
import { type Allocator, type AllocatorContext, type CensusGroup, OUT_OF_MEMORY } from '../allocator/allocator.ts';
import { MIB } from '../base/bytes.ts';
import { InvariantError } from '../base/errors.ts';
import { liveSize } from '../trace/summary.ts';
import { Arena } from './arena.ts';
import { PlanPosition } from './plan-position.ts';
import type { StepPlan } from './step-plan.ts';

/** Of so many planned-size requests in a row, if so many miss, the plan is dropped. */
const WATCHED = 1024;
const MAX_MISS_SHARE = 0.75;
/** Share of a step's requests that must be as planned before the plan is used. */
const MIN_FOLLOWED = 0.8;
const GROWTH_PER_FLUSH: number = 128 * MIB;

/** Blocks of the dynamic pool get even numbers, planned ones odd numbers. */
const isPlanned = (block: number) => (block & 1) === 1;

interface PlannedBlock {
  readonly offset: number;
  readonly size: number;
  readonly requested: number;
  readonly stream: number;
  pending: boolean;
}

export interface PlanUse {
  /** Requests served at their planned offset. */
  readonly hits: number;
  /** Requests the plan named whose range was still taken. */
  readonly occupied: number;
  /** Requests the plan did not name. */
  readonly misses: number;
  readonly stoodDown: boolean;
}

export class PlannedAllocator implements Allocator {
  private readonly plan: StepPlan;
  private readonly context: AllocatorContext;
  private readonly dynamic: Allocator;
  private readonly position: PlanPosition;
  private readonly blocks: (PlannedBlock | undefined)[] = [];
  private readonly recycled: number[] = [];
  /** Taken ranges of the arena by ascending offset; each is a slot of `blocks`. */
  private readonly taken: number[] = [];
  private readonly arena: Arena;
  private active = false;
  /** Bytes backed since the dynamic pool was last told to give back what it caches. */
  private grown = 0;
  private plannedBytes = 0;
  private hits = 0;
  private occupied = 0;
  private misses = 0;
  private recentRequests = 0;
  private recentMisses = 0;
  private stoodDown = false;

  constructor(context: AllocatorContext, plan: StepPlan, createDynamic: (context: AllocatorContext) => Allocator) {
    this.plan = plan;
    this.context = context;
    this.arena = new Arena(context.device, plan.layout.footprint);
    this.position = new PlanPosition(plan.step.blocks, plan.step.turns);
    const { allowedBytes } = context;
    this.dynamic = createDynamic({
      ...context,
      allowedBytes: allowedBytes === undefined ? undefined : Math.max(0, allowedBytes - plan.layout.footprint),
      synchronize: () => this.synchronize(),
    });
  }

  get use(): PlanUse {
    return { hits: this.hits, occupied: this.occupied, misses: this.misses, stoodDown: this.stoodDown };
  }

  malloc(requested: number, stream: number, pool: number): number {
    if (!this.stoodDown && pool === 0) {
      const slot = this.mallocPlanned(requested, stream);
      if (slot >= 0) return 2 * slot + 1;
    }
    const block = this.dynamic.malloc(requested, stream, pool);
    return block === OUT_OF_MEMORY ? OUT_OF_MEMORY : 2 * block;
  }

  free(block: number): void {
    if (!isPlanned(block)) {
      this.dynamic.free(block >> 1);
      return;
    }
    const planned = this.plannedBlock(block);
    planned.pending = true;
    this.plannedBytes -= planned.size;
  }

  complete(block: number): void {
    if (!isPlanned(block)) {
      this.dynamic.complete(block >> 1);
      return;
    }
    const slot = block >> 1;
    const at = this.placeOf(this.plannedBlock(block).offset);
    this.taken.splice(at, 1);
    this.blocks[slot] = undefined;
    this.recycled.push(slot);
    if (this.stoodDown) this.releaseArena();
  }

  emptyCache(): void {
    this.dynamic.emptyCache();
    if (this.stoodDown) this.releaseArena();
  }

  addressOf(block: number): number {
    return isPlanned(block) ? this.arena.address + this.plannedBlock(block).offset : this.dynamic.addressOf(block >> 1);
  }

  sizeOf(block: number): number {
    return isPlanned(block) ? this.plannedBlock(block).size : this.dynamic.sizeOf(block >> 1);
  }

  get reservedBytes(): number {
    return this.dynamic.reservedBytes + this.arena.reservedBytes;
  }

  get allocatedBytes(): number {
    return this.dynamic.allocatedBytes + this.plannedBytes;
  }

  get retries(): number {
    return this.dynamic.retries;
  }

  get ooms(): number {
    return this.dynamic.ooms;
  }

  census(): CensusGroup[] {
    if (this.arena.reservedBytes === 0) return this.dynamic.census();
    // Parts of the arena without memory count as neither reserved nor free.
    const reserved = this.arena.reservedBytes;
    let requested = 0;
    let pending = 0;
    let held = 0;
    let below = 0;
    let freePieces = 0;
    let largestFree = 0;
    const noteFree = (bytes: number) => {
      if (bytes > 0) freePieces++;
      largestFree = Math.max(largestFree, bytes);
    };
    for (const slot of this.taken) {
      const block = this.blocks[slot]!;
      noteFree(block.offset - below);
      below = block.offset + block.size;
      held += block.size;
      if (block.pending) pending += block.size;
      else requested += block.requested;
    }
    noteFree(Math.min(reserved - held, this.plan.layout.footprint - below));
    const stream = this.plan.step.blocks[0]?.stream ?? 0;
    const rounding = held - pending - requested;
    const arena = {
      stream,
      pool: 0,
      small: false,
      reserved,
      requested,
      rounding,
      pending,
      free: reserved - held,
      freePieces,
      largestFree,
    };
    return [arena, ...this.dynamic.census()];
  }

  check(): void {
    this.dynamic.check();
    let below = 0;
    let bytes = 0;
    for (const slot of this.taken) {
      const block = this.blocks[slot];
      if (!block) throw new InvariantError(`slot ${slot} is listed and not in use`);
      if (block.offset < below) throw new InvariantError(`planned blocks overlap at offset ${block.offset}`);
      below = block.offset + block.size;
      if (!block.pending) bytes += block.size;
    }
    if (below > this.plan.layout.footprint) throw new InvariantError(`a planned block ends at ${below}, beyond the arena`);
    if (bytes !== this.plannedBytes)
      throw new InvariantError(`planned blocks add up to ${bytes} bytes, allocated are ${this.plannedBytes}`);
  }

  /** A slot, or -1 when the request is not for the plan to serve. */
  private mallocPlanned(requested: number, stream: number): number {
    const size = liveSize(requested);
    const index = this.position.request(size, stream);
    this.watch(index < 0);
    if (index < 0 || !this.activate()) {
      this.misses++;
      return -1;
    }
    const { step, layout } = this.plan;
    for (let other = 0; other < step.turns; other++) {
      const offset = layout.offsets[index * step.turns + ((this.position.currentTurn + other) % step.turns)]!;
      if (!this.isFree(offset, size) || !this.back(offset, size)) continue;
      this.hits++;
      return this.take({ offset, size, requested, stream, pending: false });
    }
    this.occupied++;
    this.recentMisses++;
    return -1;
  }

  private take(block: PlannedBlock): number {
    const slot = this.recycled.pop() ?? this.blocks.length;
    this.blocks[slot] = block;
    this.taken.splice(this.placeOf(block.offset), 0, slot);
    this.plannedBytes += block.size;
    return slot;
  }

  private isFree(offset: number, size: number): boolean {
    const at = this.placeOf(offset);
    const above = this.taken[at];
    if (above !== undefined && this.blocks[above]!.offset < offset + size) return false;
    const below = this.taken[at - 1];
    return below === undefined || this.blocks[below]!.offset + this.blocks[below]!.size <= offset;
  }

  /** The first taken range at or above an offset. */
  private placeOf(offset: number): number {
    let low = 0;
    let high = this.taken.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.blocks[this.taken[middle]!]!.offset < offset) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /**
   * Takes the arena once a whole step has been seen to follow the plan. The first step makes what stays (optimizer state) among
   * what goes, and would put it into the arena for good. What the dynamic pool has cached by then is given back first.
   */
  private activate(): boolean {
    if (!this.active && this.position.followedShare >= MIN_FOLLOWED) this.active = true;
    return this.active;
  }

  /** Memory for a planned range; while the arena grows the dynamic pool gives back what it no longer needs. */
  private back(offset: number, size: number): boolean {
    const missing = this.arena.missing(offset, size);
    if (missing === 0) return true;
    this.grown += missing;
    if (this.arena.reservedBytes === 0 || this.grown >= GROWTH_PER_FLUSH) {
      this.grown = 0;
      this.dynamic.emptyCache();
    }
    if (this.arena.back(offset, size)) return true;
    this.stoodDown = true;
    return false;
  }

  private releaseArena(): void {
    if (this.taken.length === 0) this.arena.release();
  }

  /** A job that no longer does what was planned gets its memory back. */
  private watch(missed: boolean): void {
    this.recentRequests++;
    if (missed) this.recentMisses++;
    if (this.recentRequests < WATCHED) return;
    if (this.active && this.recentMisses > WATCHED * MAX_MISS_SHARE) {
      this.stoodDown = true;
      this.releaseArena();
    }
    this.recentRequests = 0;
    this.recentMisses = 0;
  }

  /** The dynamic pool waits for all streams: planned blocks that are done go free, its own are handed to it. */
  private synchronize(): number[] {
    const own: number[] = [];
    for (const block of this.context.synchronize?.() ?? []) {
      if (isPlanned(block)) this.complete(block);
      else own.push(block >> 1);
    }
    return own;
  }

  private plannedBlock(block: number): PlannedBlock {
    const planned = this.blocks[block >> 1];
    if (!planned) throw new InvariantError(`block ${block} is not in use`);
    return planned;
  }
}
