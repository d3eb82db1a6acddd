// A proof by search that lending is safe: every short program on two or three streams, in every order in which kernels end, on
// the real engine. With a mistake in the driver or in the engine, the search finds a race.
import { describe, expect, test } from 'vitest';
import { type EngineSettings, LENDING_RULES } from '../../src/abi/settings.ts';
import { WEIR_SETTINGS } from '../../src/allocator/engine/settings.ts';
import { MIB } from '../../src/base/bytes.ts';
import { type Action, explore, type Found, type Scope } from './lending/explore.ts';
import type { DriverMistake } from './lending/gpu-model.ts';
import { compileMutant, MUTANTS } from './lending/mutants.ts';

/** No slack, so that streams have to lend; small handles, so that borrowed ones are stitched. */
const TIGHT: EngineSettings = {
  ...WEIR_SETTINGS,
  regionBytes: 256 * MIB,
  fixedHandle: 4 * MIB,
  slackShare: 0,
  slackBytes: 0,
  minStitch: 2 * MIB,
  growthShare: 0,
  sharedSlackShare: 0,
  sharedGrowthShare: 0,
  waitShare: 0,
  eventBytes: 1,
};

const malloc = (stream: number, mib: number): Action => ({ do: 'malloc', stream, bytes: mib * MIB });
const free = (block: number): Action => ({ do: 'free', block });
const share = (block: number, stream: number): Action => ({ do: 'share', block, stream });

const use = (block: number): Action => ({ do: 'use', block });

const TWO: Scope = { streams: 2, capacity: 16 * MIB, sizes: [6 * MIB, 8 * MIB], mostLive: 3, depth: 4, settings: TIGHT, start: [] };

const SCOPES: Readonly<Record<string, Scope>> = {
  'two streams': { ...TWO, depth: 6 },
  'two streams, no event until one is needed': { ...TWO, depth: 5, settings: { ...TIGHT, eventBytes: 1024 * MIB } },
  'two streams after releases on both': { ...TWO, start: [malloc(0, 8), malloc(1, 8), free(0), free(0)] },
  'two streams after splits and joins': {
    ...TWO,
    capacity: 18 * MIB,
    start: [malloc(1, 2), malloc(0, 4), malloc(0, 4), malloc(0, 8), free(1), use(1), free(1)],
  },
  'two streams after a shared block': { ...TWO, start: [malloc(0, 8), share(0, 1), malloc(1, 8), free(0)] },
  'three streams': { ...TWO, streams: 3, sizes: [8 * MIB], depth: 5 },
  'three streams after a shared block': { ...TWO, streams: 3, sizes: [8 * MIB], start: [malloc(0, 8), share(0, 1), share(0, 2), free(0)] },
  'stitches over borrowed memory': {
    ...TWO,
    sizes: [6 * MIB, 12 * MIB],
    depth: 3,
    start: [malloc(0, 4), malloc(1, 4), malloc(0, 4), malloc(1, 4), free(0), free(0)],
  },
  'three streams after handles were gathered': {
    ...TWO,
    streams: 3,
    sizes: [2 * MIB, 6 * MIB],
    mostLive: 5,
    depth: 3,
    start: [malloc(0, 4), malloc(0, 4), malloc(0, 4), malloc(0, 4), free(0), free(1)],
  },
  'the rules of GLake': {
    ...TWO,
    settings: { ...TIGHT, ...LENDING_RULES.glake, eventBytes: 1 },
    start: [malloc(0, 8), malloc(0, 8), free(0)],
  },
  'without waits': { ...TWO, settings: { ...TIGHT, waitAllowed: 0 } },
};

const total = { states: 0, steps: 0 };

describe('no byte is ever in use by two unordered operations', () => {
  test.each(Object.entries(SCOPES))('%s', (name, scope) => {
    const found = explore(scope);
    expect(found.race).toBeUndefined();
    total.states += found.states;
    total.steps += found.steps;
    console.log(
      `${name}: ${found.states} states, ${found.steps} steps, up to ${found.borrows} borrowings and ${found.waits} waits in one program`,
    );
  });

  test('and streams did lend', () => {
    console.log(`explored ${total.states} states in ${total.steps} steps`);
    expect(total.states).toBeGreaterThan(5000);
  });
});

/** A race in the first scope in which the mistake shows, quick scopes first. */
function raceOf(run: (scope: Scope) => Found): string | undefined {
  for (const scope of Object.values(SCOPES).sort((left, right) => left.depth - right.depth || right.start.length - left.start.length)) {
    const { race } = run(scope);
    if (race !== undefined) return race;
  }
  return undefined;
}

describe('mistakes are found', () => {
  test.each(['no waits', 'older event', 'always done', 'events on the wrong stream'] satisfies DriverMistake[])('driver: %s', (mistake) => {
    const race = raceOf((scope) => explore(scope, undefined, mistake));
    console.log(`killed: driver, ${mistake}: ${race}`);
    expect(race).toBeDefined();
  });

  test.each(MUTANTS.map((mutant) => [mutant.name, mutant] as const))('engine: %s', async (name, mutant) => {
    const module = await compileMutant(mutant);
    const race = raceOf((scope) => explore(scope, module));
    console.log(`killed: engine, ${name}: ${race}`);
    expect(race).toBeDefined();
  });
});
