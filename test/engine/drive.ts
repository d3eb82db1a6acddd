// Random programs for an allocator, and the harness that runs them and checks everything after each step.
import { readFileSync } from 'node:fs';
import { type EngineSettings, LENDING_RULES } from '../../src/abi/settings.ts';
import { EngineAllocator } from '../../src/allocator/engine/allocator.ts';
import { compileEngine, type EngineModule } from '../../src/allocator/engine/load.ts';
import { GMLAKE_SETTINGS, WEIR_SETTINGS } from '../../src/allocator/engine/settings.ts';
import { GIB, KIB, MIB } from '../../src/base/bytes.ts';
import { Ownership } from './ownership.ts';
import type { StrictBackend } from './strict-backend.ts';

/**
 * A step of a program: a request, the free of a live block, its two halves (release, complete), a use by another stream, or
 * emptyCache().
 */
export type Step =
  | { readonly do: 'malloc'; readonly bytes: number; readonly stream: number; readonly pool: number }
  | { readonly do: 'free'; readonly pick: number }
  | { readonly do: 'release'; readonly pick: number }
  | { readonly do: 'complete'; readonly pick: number }
  | { readonly do: 'record'; readonly pick: number; readonly stream: number }
  | { readonly do: 'emptyCache' };

/** Random numbers that are the same everywhere (mulberry32). */
export function numbersFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let value = Math.imul(state ^ (state >>> 15), state | 1);
    value ^= value + Math.imul(value ^ (value >>> 7), value | 61);
    return ((value ^ (value >>> 14)) >>> 0) / 4294967296;
  };
}

export interface ProgramOptions {
  readonly steps: number;
  readonly streams?: number;
  readonly pools?: number;
  /** Bytes to keep live, roughly. */
  readonly level?: number;
  readonly largest?: number;
  /** Only large requests and no emptyCache(), for many stitches. */
  readonly stitching?: boolean;
}

/** A program whose memory rises and falls in waves, as in training, so that free memory lies in many places. */
export function randomProgram(seed: number, options: ProgramOptions): Step[] {
  const next = numbersFrom(seed);
  const { steps, streams = 2, pools = 2, level = 400 * MIB, largest = 256 * MIB, stitching = false } = options;
  const size = () => (stitching ? 1 + Math.floor(MIB * (largest / MIB) ** next()) : sizeFrom(next, largest));
  const program: Step[] = [];
  let live = 0;
  const sizes: number[] = [];
  const common = Array.from({ length: 6 }, size);
  for (let step = 0; step < steps; step++) {
    const target = level * (0.3 + 0.7 * Math.abs(Math.sin((step / steps) * 25 * (steps / 400))));
    if (next() < 0.004 && !stitching) program.push({ do: 'emptyCache' });
    else if (live < target || sizes.length === 0) {
      const bytes = next() < 0.5 ? common[Math.floor(next() * common.length)]! : size();
      program.push({ do: 'malloc', bytes, stream: Math.floor(next() ** 2 * streams), pool: next() < 0.9 ? 0 : Math.floor(next() * pools) });
      sizes.push(bytes);
      live += bytes;
    } else {
      const kind = next();
      if (kind < 0.1) program.push({ do: 'complete', pick: next() });
      else if (kind > 0.9 && streams > 1) program.push({ do: 'record', pick: next(), stream: Math.floor(next() * streams) });
      else {
        program.push({ do: kind < 0.25 ? 'release' : 'free', pick: next() });
        live -= sizes.splice(Math.floor(next() * sizes.length), 1)[0]!;
      }
    }
  }
  return program;
}

function sizeFrom(next: () => number, largest: number): number {
  const kind = next();
  if (kind < 0.25) return 1 + Math.floor(next() * 4 * KIB);
  if (kind < 0.4) return 1 + Math.floor(next() * MIB);
  if (kind < 0.9) return 1 + Math.floor(MIB * (largest / MIB) ** next());
  return Math.min(largest, UNIT_SIZES[Math.floor(next() * UNIT_SIZES.length)]!);
}

const UNIT_SIZES = [MIB, MIB + 1, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 20 * MIB, 64 * MIB, GIB];

export interface Outcome {
  readonly allocator: EngineAllocator;
  readonly failures: number;
  /** The address of every request in order, -1 if it failed. */
  readonly addresses: number[];
}

let debugModule: EngineModule | undefined;

/** The build with assertions. */
export function assertingEngine(): EngineModule {
  debugModule ??= compileEngine(new Uint8Array(readFileSync('build/engine/engine.debug.wasm')));
  return debugModule;
}

export const PRESETS: Readonly<Record<string, EngineSettings>> = {
  weir: { ...WEIR_SETTINGS, regionBytes: 8 * GIB },
  'weir, few stitches, handles of 4 MiB': { ...WEIR_SETTINGS, regionBytes: 2 * GIB, stitchLimit: 3, fixedHandle: 4 * MIB, groupBytes: 0 },
  'weir, tight': {
    ...WEIR_SETTINGS,
    regionBytes: 64 * MIB,
    slackShare: 0,
    slackBytes: 0,
    stitchRoom: 1,
    eventBytes: MIB,
    sharedSlackShare: 0,
  },
  'weir, rules of GLake': { ...WEIR_SETTINGS, ...LENDING_RULES.glake, regionBytes: 8 * GIB, slackShare: 0, slackBytes: 0, eventBytes: MIB },
  gmlake: { ...GMLAKE_SETTINGS, minStitch: 2 * MIB, stitchLimit: 20 },
  'gmlake, limit 32 MiB': { ...GMLAKE_SETTINGS, minStitch: 32 * MIB },
};

export interface RunOptions {
  /** Check invariants and ownership after every step. */
  readonly checked?: boolean;
  /** Free everything and empty the cache at the end. */
  readonly cleanUp?: boolean;
}

/** Runs a program. Throws if an invariant is broken or a byte has two owners. */
export function runProgram(program: readonly Step[], backend: StrictBackend, settings: EngineSettings, options: RunOptions = {}): Outcome {
  const { checked = true, cleanUp = true } = options;
  const allocator = new EngineAllocator({ backend, streams: [0, 1, 2], events: backend }, settings, assertingEngine());
  const ownership = new Ownership(backend);
  const live: number[] = [];
  const pending: number[] = [];
  const addresses: number[] = [];
  let failures = 0;
  const end = (block: number) => {
    if (checked) ownership.drop(block, allocator.addressOf(block), allocator.sizeOf(block));
    allocator.complete(block);
  };
  for (const step of program) {
    switch (step.do) {
      case 'malloc': {
        const block = allocator.malloc(step.bytes, step.stream, step.pool);
        addresses.push(block < 0 ? -1 : allocator.addressOf(block));
        if (block < 0) {
          failures++;
          break;
        }
        if (allocator.sizeOf(block) < step.bytes) throw new Error(`block of ${allocator.sizeOf(block)} bytes for ${step.bytes}`);
        if (checked) ownership.take(block, allocator.addressOf(block), allocator.sizeOf(block));
        live.push(block);
        break;
      }
      case 'free':
      case 'release': {
        const block = take(live, step.pick);
        if (block === undefined) break;
        allocator.free(block);
        if (step.do === 'free') end(block);
        else pending.push(block);
        break;
      }
      case 'complete': {
        const block = take(pending, step.pick);
        if (block !== undefined) end(block);
        break;
      }
      case 'record': {
        const block = live[Math.floor(step.pick * live.length)];
        if (block !== undefined) allocator.recordStream(block, step.stream);
        break;
      }
      case 'emptyCache':
        allocator.emptyCache();
        break;
    }
    if (checked) {
      allocator.check(3);
      if (allocator.reservedBytes !== backend.usedBytes) throw new Error(`reserved ${allocator.reservedBytes}, held ${backend.usedBytes}`);
    }
  }
  if (cleanUp) {
    for (const block of live) allocator.free(block);
    for (const block of [...live, ...pending]) end(block);
    // The driver is asked again after a failure.
    for (let attempt = 0; attempt < 100 && (attempt === 0 || !backend.holdsNothing); attempt++) allocator.emptyCache();
    allocator.check(3);
  }
  return { allocator, failures, addresses };
}

function take(list: number[], pick: number): number | undefined {
  return list.splice(Math.floor(pick * list.length), 1)[0];
}
