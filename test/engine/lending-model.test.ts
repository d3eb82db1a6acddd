// A proof by search that lending and unmapping are safe: every short program on two or three streams, in every order in which
// kernels end, on the real engine. With a mistake in the driver or in the engine, the search finds a race.
import { describe, expect, test } from 'vitest';
import { type EngineSettings, LENDING_RULES } from '../../src/abi/settings.ts';
import { MIB } from '../../src/base/bytes.ts';
import { type Action, explore, type Found, type Scope } from './lending/explore.ts';
import type { DriverMistake } from './lending/gpu-model.ts';
import { compileMutant, MUTANTS, UNMAPPING_MUTANTS } from './lending/mutants.ts';
import { TIGHT } from './lending/tight.ts';

const malloc = (stream: number, mib: number): Action => ({ do: 'malloc', stream, bytes: mib * MIB });
const free = (block: number): Action => ({ do: 'free', block });
const share = (block: number, stream: number): Action => ({ do: 'share', block, stream });

const end = (stream: number): Action => ({ do: 'end', stream });
const use = (block: number): Action => ({ do: 'use', block });

const TWO: Scope = { streams: 2, capacity: 16 * MIB, sizes: [6 * MIB, 8 * MIB], mostLive: 3, depth: 4, settings: TIGHT, start: [] };

/** Deeper, and with every mutant of the engine: minutes more. `npm run model` and CI take them. */
const ALL = process.env['WEIR_MODEL_ALL'] === '1';
const reason = ALL ? '' : ' (skipped: only npm run model takes the time for it)';

const SCOPES: Readonly<Record<string, Scope>> = {
  'two streams': { ...TWO, depth: ALL ? 6 : 5 },
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
  // Handles of one free range whose releases are over at different times.
  'two streams, a long free range': {
    ...TWO,
    capacity: 20 * MIB,
    sizes: [4 * MIB, 8 * MIB],
    mostLive: 4,
    start: [malloc(1, 4), malloc(0, 4), malloc(0, 4), malloc(0, 4), end(0), free(1), free(1), free(1)],
  },
  'a second stream after releases on the first': {
    ...TWO,
    capacity: 12 * MIB,
    sizes: [4 * MIB, 8 * MIB],
    start: [malloc(0, 4), malloc(0, 4), malloc(0, 4), free(0), free(0)],
  },
  'three streams after memory was lent with a wait': {
    ...TWO,
    streams: 3,
    capacity: 24 * MIB,
    sizes: [2 * MIB, 6 * MIB],
    mostLive: 4,
    depth: 3,
    shares: false,
    start: [
      ...[malloc(1, 6), end(1), malloc(1, 4), free(1), malloc(0, 4), malloc(2, 4), end(1), use(0), free(0), free(0), end(1)],
      ...[free(0), malloc(1, 4), malloc(2, 2), free(0)],
    ],
  },
  'two streams, a block that begins inside a handle': {
    ...TWO,
    sizes: [4 * MIB],
    depth: 3,
    shares: false,
    start: [malloc(1, 6), end(1), free(0), malloc(0, 2), free(0), malloc(0, 4)],
  },
  'three streams, a free before a neighbour that was freed later': {
    ...TWO,
    streams: 3,
    capacity: 20 * MIB,
    sizes: [4 * MIB, 6 * MIB],
    mostLive: 8,
    depth: 3,
    shares: false,
    start: [
      ...[malloc(0, 6), free(0), end(0), malloc(1, 4), use(0), use(0), free(0), end(1), end(1), end(1)],
      ...[malloc(2, 4), malloc(0, 4), free(0), free(0)],
    ],
  },
  'handles of one range: over, late, and two that are over': {
    ...TWO,
    capacity: 20 * MIB,
    sizes: [8 * MIB],
    depth: 2,
    start: [malloc(1, 4), malloc(0, 4), malloc(0, 4), malloc(0, 8), end(0), end(0), end(0), free(1), free(2), use(1), free(1)],
  },
  // Stream 1 has the handle before them, so that the request leaves the second part of what it took.
  'handles of one range: waited for, over, late': {
    ...TWO,
    streams: 3,
    capacity: 24 * MIB,
    sizes: [6 * MIB],
    mostLive: 4,
    depth: 2,
    start: [
      ...[malloc(1, 8), malloc(0, 4), malloc(0, 4), malloc(0, 4), malloc(0, 4), end(0), end(0), end(0), end(0)],
      ...[free(1), malloc(1, 4), end(1), end(1), free(4), use(2), free(2), use(1), free(1), share(0, 0), free(0)],
      ...[malloc(1, 8), use(0), free(0), end(0)],
    ],
  },
  'three streams, a lender that is further behind than the borrower': {
    ...TWO,
    streams: 3,
    capacity: 12 * MIB,
    sizes: [6 * MIB],
    mostLive: 4,
    depth: 2,
    settings: { ...TIGHT, stitchLimit: 1, stitchRoom: 1 },
    start: [
      ...[malloc(0, 6), malloc(1, 6), free(0), malloc(0, 6), free(1), malloc(2, 4), malloc(1, 6), share(1, 0), free(0)],
      ...[use(0), malloc(1, 4), end(0), free(1), free(0)],
    ],
  },
  'the rules of GLake': {
    ...TWO,
    settings: { ...TIGHT, ...LENDING_RULES.glake, eventBytes: 1 },
    start: [malloc(0, 8), malloc(0, 8), free(0)],
  },
  'without waits': { ...TWO, settings: { ...TIGHT, waitAllowed: 0 } },
};

/** One stitch is kept, and none is extended, so that every further one drops the first. */
const FEW: EngineSettings = { ...TIGHT, stitchLimit: 1, stitchRoom: 1, eventBytes: 1024 * MIB };

/** An event for every release. */
const MARKED: EngineSettings = { ...FEW, eventBytes: 1 };

const WAIT: readonly Action[] = [{ do: 'begin wait' }, { do: 'end wait' }];

/** Handles of 4 MiB on stream 0, of which every second is free; no kernel is in flight. `live`: blocks that live already. */
const holes = (count: number, live = 0): Action[] => [
  ...Array.from({ length: 2 * count }, () => malloc(0, 4)),
  ...Array.from({ length: 2 * count }, () => end(0)),
  ...Array.from({ length: count }, (_, index) => free(live + index)),
];

const EVICTING: Scope = {
  ...TWO,
  capacity: 32 * MIB,
  sizes: [8 * MIB, 12 * MIB],
  mostLive: 6,
  depth: 3,
  settings: FEW,
  start: [...holes(4), malloc(0, 8), free(4)],
};

const UNMAPPING: Readonly<Record<string, Scope>> = {
  'one stream, stitches dropped': { ...EVICTING, streams: 1, depth: 5 },
  'two streams, stitches dropped': { ...EVICTING, shares: false, depth: 4 },
  'two streams, a stitch that both have used': {
    ...EVICTING,
    start: [...holes(4), malloc(0, 8), end(0), free(4), malloc(1, 8), free(4)],
  },
  'two streams in different parts of a stitch': {
    ...EVICTING,
    capacity: 44 * MIB,
    sizes: [8 * MIB, 20 * MIB],
    settings: MARKED,
    mostLive: 7,
    // Stream 1 is known from the start, so that stream 0 has events.
    start: [malloc(1, 4), end(1), ...holes(5, 1), malloc(0, 16), free(6), end(0), malloc(0, 8), malloc(1, 8), free(6), free(6)],
  },
  'two streams that take turns in a stitch': {
    ...EVICTING,
    capacity: 44 * MIB,
    sizes: [20 * MIB],
    settings: MARKED,
    mostLive: 7,
    depth: 2,
    shares: false,
    start: [
      ...[malloc(1, 4), end(1), ...holes(5, 1), malloc(0, 16), free(6), end(0), malloc(0, 8), malloc(1, 8), free(6), free(6)],
      ...[malloc(0, 8), free(6), malloc(1, 8), free(6), end(0), end(1), end(1)],
    ],
  },
  'two streams, a stitch with a shared block': { ...EVICTING, start: [...holes(4), malloc(0, 8), share(4, 1), end(0), free(4)] },
  'a stream that may be gone': {
    ...EVICTING,
    shares: false,
    foreign: [1],
    start: [...holes(4), malloc(0, 8), end(0), free(4), malloc(1, 8), free(4)],
  },
  'stitches during a capture': {
    ...EVICTING,
    streams: 1,
    unmapping: ['capture', 'end capture', 'give back'],
    start: [...holes(4), malloc(0, 8), free(4), ...WAIT],
  },
  'memory given back': { ...TWO, settings: MARKED, unmapping: ['give back'], start: [malloc(0, 8), malloc(1, 8), free(0)] },
  'memory given back that was lent': {
    ...TWO,
    capacity: 8 * MIB,
    sizes: [2 * MIB, 4 * MIB],
    settings: { ...MARKED, fixedHandle: 8 * MIB },
    unmapping: ['give back'],
    start: [malloc(0, 8), end(0), free(0), malloc(1, 4), malloc(0, 4), end(0), free(0), free(0)],
  },
  'frees during a wait': {
    ...TWO,
    shares: false,
    settings: FEW,
    unmapping: ['give back', 'begin wait', 'end wait'],
    start: [malloc(0, 8), malloc(1, 8), free(0), { do: 'begin wait' }, use(0)],
  },
  'shared blocks and a wait': {
    ...TWO,
    settings: FEW,
    sizes: [8 * MIB],
    unmapping: ['give back', 'begin wait', 'end wait'],
    start: [malloc(0, 8), share(0, 1)],
  },
  'a block that its stream waits for': {
    ...TWO,
    capacity: 20 * MIB,
    sizes: [8 * MIB],
    mostLive: 5,
    depth: 3,
    settings: MARKED,
    unmapping: ['give back'],
    start: [malloc(0, 4), malloc(0, 4), malloc(0, 4), malloc(1, 8), share(0, 1), end(0), end(0), end(0), free(0), free(1), free(1)],
  },
  'memory runs out during a capture': {
    ...TWO,
    settings: MARKED,
    depth: 3,
    unmapping: ['capture', 'end capture', 'give back'],
    start: [malloc(0, 8), malloc(1, 8), free(1), ...WAIT],
  },
};

const total = { states: 0, steps: 0 };

describe.each([
  ['no byte is ever in use by two unordered operations', SCOPES],
  ['nothing is unmapped or freed that the GPU still uses', UNMAPPING],
] as const)('%s', (_, scopes) => {
  test.each(Object.entries(scopes))('%s', (name, scope) => {
    const found = explore(scope);
    expect(found.race).toBeUndefined();
    total.states += found.states;
    total.steps += found.steps;
    console.log(
      `${name}: ${found.states} states, ${found.steps} steps, in one program up to ${found.borrows} borrowings, ${found.waits} waits ` +
        `and ${found.unmaps} calls of unmap`,
    );
    // A scope of unmapping in which nothing was unmapped would show nothing.
    if (scopes === UNMAPPING) expect(found.unmaps).toBeGreaterThan(0);
  });

  test('and there was much to explore', () => {
    console.log(`explored ${total.states} states in ${total.steps} steps`);
    expect(total.states).toBeGreaterThan(5000);
  });
});

/** A race in the first scope in which the mistake shows, quick scopes first. */
function raceOf(scopes: Readonly<Record<string, Scope>>, run: (scope: Scope) => Found): string | undefined {
  for (const scope of Object.values(scopes).sort((left, right) => left.depth - right.depth || right.start.length - left.start.length)) {
    const { race } = run(scope);
    if (race !== undefined) return race;
  }
  return undefined;
}

describe('mistakes are found', () => {
  test.each(['no waits', 'older event', 'always done', 'events on the wrong stream'] satisfies DriverMistake[])('driver: %s', (mistake) => {
    const race = raceOf(SCOPES, (scope) => explore(scope, undefined, mistake));
    console.log(`killed: driver, ${mistake}: ${race}`);
    expect(race).toBeDefined();
  });

  test.each(['always done', 'events on the wrong stream'] satisfies DriverMistake[])('driver, when unmapping: %s', (mistake) => {
    const race = raceOf(UNMAPPING, (scope) => explore(scope, undefined, mistake));
    console.log(`killed: driver, when unmapping, ${mistake}: ${race}`);
    expect(race).toBeDefined();
  });

  test.skipIf(!ALL).each(MUTANTS.map((mutant) => [mutant.name, mutant] as const))(`engine: %s${reason}`, async (name, mutant) => {
    const module = await compileMutant(mutant);
    const race = raceOf(SCOPES, (scope) => explore(scope, module));
    console.log(`killed: engine, ${name}: ${race}`);
    expect(race).toBeDefined();
  });

  test.skipIf(!ALL).each(UNMAPPING_MUTANTS.map((mutant) => [mutant.name, mutant] as const))(
    `engine, when unmapping: %s${reason}`,
    async (name, mutant) => {
      const module = await compileMutant(mutant);
      const race = raceOf(UNMAPPING, (scope) => explore(scope, module));
      console.log(`killed: engine, when unmapping, ${name}: ${race}`);
      expect(race).toBeDefined();
    },
  );
});
