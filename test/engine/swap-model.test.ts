// A proof by search that swapping is safe beside streams that read and lend: every short program of two streams, with tensors that
// are swapped out and in between, in every order in which kernels end. If an operation of swapping is left out, a race is found.
import { describe, expect, test } from 'vitest';
import { MIB } from '../../src/base/bytes.ts';
import { RaceError } from './lending/gpu-model.ts';
import {
  COMPUTE,
  ORDER,
  type Order,
  SIDE,
  type SwapAction,
  type SwapMistake,
  type SwapScope,
  SwapWorld,
  type TensorAction,
} from './lending/swap-world.ts';
import { TIGHT } from './lending/tight.ts';

const of = (what: TensorAction, tensor = 0): SwapAction => ({ do: what, tensor });
const malloc = (stream: number, mib: number): SwapAction => ({ do: 'malloc', stream, bytes: mib * MIB });
const free = (block: number): SwapAction => ({ do: 'free', block });

const ONE: SwapScope = {
  tensors: [COMPUTE],
  tensorBytes: 8 * MIB,
  capacity: 8 * MIB,
  sizes: [8 * MIB],
  mostLive: 1,
  depth: 5,
  settings: TIGHT,
  start: [],
};
const TWO: SwapScope = { ...ONE, tensors: [COMPUTE, COMPUTE], capacity: 16 * MIB, depth: 4 };

const SCOPES: Readonly<Record<string, SwapScope>> = {
  'one tensor': ONE,
  'one tensor that was read': { ...ONE, start: [of('read'), of('release')] },
  'one tensor that is away': { ...ONE, start: [of('release'), of('begin'), of('end')] },
  'one tensor whose memory has a new owner': { ...ONE, start: [of('release'), of('begin'), of('end'), malloc(SIDE, 8)] },
  'one tensor that is back, read, and may leave again': {
    ...ONE,
    start: [of('release'), of('begin'), of('end'), of('unpack')],
  },
  'optimizer state': { ...ONE, inPlace: true },
  'optimizer state that was written': { ...ONE, inPlace: true, start: [of('write'), of('release')] },
  'optimizer state that is back': { ...ONE, inPlace: true, start: [of('write'), of('release'), of('begin'), of('end'), of('unpack')] },
  'a tensor of the side stream': { ...ONE, tensors: [SIDE], start: [of('release')] },
  'stitches over given-up memory': { ...ONE, tensorBytes: 4 * MIB, sizes: [8 * MIB], capacity: 12 * MIB, mostLive: 2 },
  'two tensors': { ...TWO, start: [of('release'), of('begin'), of('release', 1)] },
  'two tensors that were read': {
    ...TWO,
    start: [of('read'), of('release'), of('begin'), of('read', 1), of('release', 1), of('begin', 1)],
  },
  'two tensors that come back together': {
    ...TWO,
    mostLive: 2,
    start: [
      of('release'),
      of('release', 1),
      of('begin'),
      of('begin', 1),
      of('end', 1),
      of('end'),
      malloc(COMPUTE, 8),
      malloc(SIDE, 8),
      free(0),
    ],
  },
};

interface Found {
  states: number;
  steps: number;
  borrows: number;
  race: string | undefined;
}

function explore(scope: SwapScope, order: Order, mistake?: SwapMistake): Found {
  const found: Found = { states: 0, steps: 0, borrows: 0, race: undefined };
  const seen = new Map<string, number>();
  const path: SwapAction[] = [];
  /** Runs the program so far from its beginning; undefined if it races. */
  const replayed = (): SwapWorld | undefined => {
    try {
      const world = new SwapWorld(scope, order, mistake);
      for (const action of scope.start) world.run(action);
      for (const action of path) world.run(action);
      world.allocator.check(2);
      return world;
    } catch (error) {
      if (!(error instanceof RaceError)) throw error;
      found.race = `${error.message} after ${[...scope.start, ...path].map((step) => Object.values(step).join(' ')).join(', ')}`;
      return undefined;
    }
  };
  const visit = (world: SwapWorld, left: number): boolean => {
    const key = world.key();
    const before = seen.get(key);
    if (before !== undefined && before >= left) return true;
    if (before === undefined) found.states++;
    seen.set(key, left);
    found.borrows = Math.max(found.borrows, world.allocator.statistics.borrows);
    if (left === 0) return true;
    for (const action of world.actions()) {
      path.push(action);
      found.steps++;
      const branch = replayed();
      const goesOn = branch !== undefined && visit(branch, left - 1);
      path.pop();
      if (!goesOn) return false;
    }
    return true;
  };
  const first = replayed();
  if (first) visit(first, scope.depth);
  return found;
}

/** Where a mistake shows soonest, by a part of its name. */
const SOONEST = [
  ['mark compute', 'a tensor of the side stream'],
  ['endOutAgain', 'one tensor that is back, read, and may leave again'],
  ['beginOutInPlace', 'optimizer state'],
  ['batch', 'two tensors that come back together'],
  ['', 'one tensor'],
] as const;

/** A race in the first scope in which the mistake shows. */
function raceOf(name: string, order: Order, mistake?: SwapMistake): string | undefined {
  const soonest = SOONEST.find(([part]) => name.includes(part))![1];
  for (const scope of [SCOPES[soonest]!, ...Object.values(SCOPES)]) {
    const { race } = explore(scope, order, mistake);
    if (race !== undefined) return race;
  }
  return undefined;
}

const without = (name: string, operation: string): Order => ({
  ...ORDER,
  [name]: ORDER[name]!.filter((one) => one !== operation),
});

describe('no byte is ever in use by two unordered operations, with swapping', () => {
  let borrows = 0;

  test.each(Object.entries(SCOPES))('%s', (name, scope) => {
    const found = explore(scope, ORDER);
    expect(found.race).toBeUndefined();
    expect(found.states).toBeGreaterThan(50);
    borrows += found.borrows;
    console.log(`${name}: ${found.states} states, ${found.steps} steps`);
  });

  test('and streams did lend', () => {
    expect(borrows).toBeGreaterThan(3);
  });
});

/** Every wait and every event that swapping makes. */
const OPERATIONS = Object.entries(ORDER).flatMap(([name, operations]) =>
  operations.filter((operation) => /waits|record|mark/.test(operation)).map((operation) => [name, operation] as const),
);

/** Nothing is lost without these. A slot is given to another tensor after the compute stream has waited for the copy from it; and a
 * tensor that leaves again is in memory of the compute stream. */
const TWICE_SURE = ['beginOut out waits for slot', 'beginOutInPlace out waits for slot', 'endOutAgain mark compute'];

describe('mistakes are found', () => {
  test.each(OPERATIONS.filter((operation) => !TWICE_SURE.includes(operation.join(' '))))('%s without: %s', (name, operation) => {
    const race = raceOf(`${name} ${operation}`, without(name, operation));
    console.log(`killed: ${name} without '${operation}': ${race}`);
    expect(race).toBeDefined();
  });

  test.each([
    'the fence is recorded before the program gives up its last reference',
    'the fence is on the compute stream',
    'a busy stream is taken for idle',
    'a later copy is taken for one that was waited for',
    'a later fence is taken for one that was waited for',
    'a second tensor of a batch does not wait for memory taken since',
  ] satisfies SwapMistake[])('%s', (mistake) => {
    const race = raceOf(mistake, ORDER, mistake);
    console.log(`killed: ${mistake}: ${race}`);
    expect(race).toBeDefined();
  });

  test('memory is freed before the waits', () => {
    const order = { ...ORDER, endOut: ['free', ...ORDER['endOut']!.filter((operation) => !['free', 'mark compute'].includes(operation))] };
    expect(raceOf('', order)).toBeDefined();
  });

  test('the copy in begins before its memory is taken in the order of the compute stream', () => {
    const order = { ...ORDER, beginIn: ['in waits for compute', 'take memory', 'copy in', 'record in'] };
    expect(raceOf('', order)).toBeDefined();
  });
});
