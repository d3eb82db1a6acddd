// Runs every program up to a length over a few streams, in every order of kernels ending, on the real engine. States seen
// before are not entered again. An engine cannot be copied, so a branch is reached by running its program again.

import type { EngineSettings } from '../../../src/abi/settings.ts';
import { EngineAllocator } from '../../../src/allocator/engine/allocator.ts';
import type { EngineModule } from '../../../src/allocator/engine/load.ts';
import { type DriverMistake, GpuModel, RaceError } from './gpu-model.ts';

/**
 * Letters of a program: request and use, use again, free, use on another stream, a kernel ends. Then those of unmapping: finished
 * memory is given back, a wait for the device begins and ends, a capture begins or ends.
 */
export type Action =
  | { readonly do: 'malloc'; readonly stream: number; readonly bytes: number }
  | { readonly do: 'use'; readonly block: number }
  | { readonly do: 'free'; readonly block: number }
  | { readonly do: 'share'; readonly block: number; readonly stream: number }
  | { readonly do: 'end'; readonly stream: number }
  | { readonly do: UnmappingAction };

export type UnmappingAction = 'give back' | 'begin wait' | 'end wait' | 'capture' | 'end capture';

export interface Scope {
  readonly streams: number;
  readonly capacity: number;
  readonly sizes: readonly number[];
  readonly mostLive: number;
  readonly depth: number;
  readonly settings: EngineSettings;
  /** Where the search begins. */
  readonly start: readonly Action[];
  /** Which of these the programs have, too. */
  readonly unmapping?: readonly UnmappingAction[];
  /** Streams that may be gone: no event can be recorded on them. */
  readonly foreign?: readonly number[];
  /** Whether blocks are used by other streams; yes if absent. */
  readonly shares?: boolean;
}

export interface Found {
  states: number;
  steps: number;
  borrows: number;
  waits: number;
  /** Most calls of unmap in one program. */
  unmaps: number;
  /** The first program found that races; undefined if none does. */
  race: string | undefined;
}

interface Live {
  readonly number: number;
  readonly stream: number;
  readonly handle: number;
  readonly shared: boolean;
}

class World {
  readonly gpu: GpuModel;
  readonly allocator: EngineAllocator;
  live: Live[] = [];
  private requests = 0;
  private waiting: { readonly given: readonly number[]; readonly release: number } | undefined;

  constructor(scope: Scope, module: EngineModule | undefined, mistake: DriverMistake | undefined) {
    this.gpu = new GpuModel(scope.streams, scope.capacity, mistake, scope.foreign);
    this.allocator = new EngineAllocator({ backend: this.gpu, streams: [0], events: this.gpu }, scope.settings, module);
  }

  run(action: Action): void {
    const { gpu, allocator } = this;
    switch (action.do) {
      case 'malloc': {
        const handle = allocator.malloc(action.bytes, action.stream, 0);
        if (handle < 0) break;
        const number = this.requests++;
        this.live.push({ number, stream: action.stream, handle, shared: false });
        // Kernels that are captured do not run.
        if (gpu.capturing) break;
        gpu.launch(action.stream, number, allocator.addressOf(handle), allocator.sizeOf(handle));
        break;
      }
      case 'use': {
        const { number, stream, handle } = this.live[action.block]!;
        gpu.launch(stream, number, allocator.addressOf(handle), allocator.sizeOf(handle));
        break;
      }
      case 'free': {
        const [block] = this.live.splice(action.block, 1);
        allocator.free(block!.handle);
        allocator.complete(block!.handle);
        break;
      }
      case 'share': {
        const block = this.live[action.block]!;
        this.live[action.block] = { ...block, shared: true };
        // A correct program makes the other stream wait for the contents of the block, and tells the allocator.
        gpu.join(action.stream, block.stream);
        allocator.recordStream(block.handle, action.stream);
        gpu.launch(action.stream, block.number, allocator.addressOf(block.handle), allocator.sizeOf(block.handle));
        break;
      }
      case 'end':
        gpu.advance(action.stream);
        break;
      case 'give back':
        allocator.releaseFinished();
        break;
      case 'begin wait':
        this.waiting = { given: gpu.beginWait(), release: allocator.latestRelease };
        break;
      case 'end wait':
        gpu.endWait(this.waiting!.given);
        allocator.streamsIdle(this.waiting!.release);
        this.waiting = undefined;
        break;
      case 'capture':
      case 'end capture':
        gpu.capturing = action.do === 'capture';
        allocator.setCapturing(0, gpu.capturing);
        break;
    }
  }

  private may(action: UnmappingAction): boolean {
    switch (action) {
      case 'give back':
        return true;
      case 'begin wait':
        return this.waiting === undefined && !this.gpu.capturing;
      case 'end wait':
        return this.waiting !== undefined;
      case 'capture':
        return this.waiting === undefined && !this.gpu.capturing;
      case 'end capture':
        return this.gpu.capturing;
    }
  }

  actions(scope: Scope): Action[] {
    const actions: Action[] = (scope.unmapping ?? []).filter((action) => this.may(action)).map((action) => ({ do: action }));
    for (let stream = 0; stream < scope.streams; stream++) {
      if (this.gpu.canAdvance(stream)) actions.push({ do: 'end', stream });
    }
    for (const [block, { shared, stream: own }] of this.live.entries()) {
      actions.push({ do: 'free', block });
      if (shared || scope.shares === false || this.gpu.capturing) continue;
      for (let stream = 0; stream < scope.streams; stream++) if (stream !== own) actions.push({ do: 'share', block, stream });
    }
    if (this.live.length < scope.mostLive) {
      for (let stream = 0; stream < scope.streams; stream++) {
        for (const bytes of scope.sizes) actions.push({ do: 'malloc', stream, bytes });
      }
    }
    return actions;
  }

  key(): string {
    const { reserved, peakInUse } = this.allocator.statistics;
    return `${this.allocator.fingerprint()} ${reserved} ${peakInUse} ${JSON.stringify([this.live, this.waiting])} ${this.gpu.state()}`;
  }
}

export function explore(scope: Scope, module?: EngineModule, mistake?: DriverMistake): Found {
  const found: Found = { states: 0, steps: 0, borrows: 0, waits: 0, unmaps: 0, race: undefined };
  const seen = new Map<string, number>();
  const path: Action[] = [...scope.start];
  const replayed = (): World => {
    const world = new World(scope, module, mistake);
    for (const action of path) world.run(action);
    return world;
  };
  /** Gives false when the search is over. */
  const visit = (world: World, left: number): boolean => {
    const key = world.key();
    const before = seen.get(key);
    if (before !== undefined && before >= left) return true;
    if (before === undefined) found.states++;
    seen.set(key, left);
    const { borrows, waits } = world.allocator.statistics;
    found.borrows = Math.max(found.borrows, borrows);
    found.waits = Math.max(found.waits, waits);
    found.unmaps = Math.max(found.unmaps, world.gpu.calls.filter((call) => call.startsWith('unmap')).length);
    if (left === 0) return true;
    const actions = world.actions(scope);
    for (const [index, action] of actions.entries()) {
      // The last branch may use up the world, the others need their own.
      const branch = index === actions.length - 1 ? world : replayed();
      path.push(action);
      found.steps++;
      try {
        branch.run(action);
        branch.allocator.check(2);
      } catch (error) {
        if (!(error instanceof RaceError)) throw error;
        found.race = `${error.message} after ${path.map((step) => Object.values(step).join(' ')).join(', ')}`;
        return false;
      }
      const goesOn = visit(branch, left - 1);
      path.pop();
      if (!goesOn) return false;
    }
    return true;
  };
  try {
    visit(replayed(), scope.depth);
  } catch (error) {
    // A mistake may show before the search begins.
    if (!(error instanceof RaceError)) throw error;
    found.race = `${error.message} in the first ${path.length} steps`;
  }
  return found;
}
