// Blocks are placed beside blocks that are expected to end when they do. Then whole handles become free together.
import { expect, test } from 'vitest';
import type { EngineSettings } from '../../src/abi/settings.ts';
import { createWeir, type EngineAllocator } from '../../src/allocator/engine/allocator.ts';
import { SimulatedBackend } from '../../src/backend/simulated.ts';
import { MIB } from '../../src/base/bytes.ts';

/** Requests that the engine recognizes: each follows the same three, which end at once. */
class Program {
  readonly allocator: EngineAllocator;

  constructor(settings: Partial<EngineSettings>) {
    this.allocator = createWeir({ backend: new SimulatedBackend(), streams: [0] }, settings);
  }

  ask(mib: number): number {
    for (const before of [2, 3, 4]) this.drop(this.allocator.malloc(before * MIB, 0, 0));
    return this.allocator.malloc(mib * MIB, 0, 0);
  }

  drop(block: number): void {
    this.allocator.free(block);
    this.allocator.complete(block);
  }

  /** Where a block lies, in MiB after another. */
  distance(block: number, other: number): number {
    return (this.allocator.addressOf(block) - this.allocator.addressOf(other)) / MIB;
  }
}

/**
 * A hole of 30 MiB between blocks that end soon, and a long free range behind a block that stays. Gives where two requests are
 * placed, in MiB after the start of the hole: one of a kind that stays, one of a kind that ends soon.
 */
function placesOf(settings: Partial<EngineSettings>, streams = 1): { staying: number; ending: number } {
  const program = new Program(settings);
  for (let stream = 1; stream < streams; stream++) program.allocator.malloc(2 * MIB, stream, 0);
  program.drop(program.ask(1024));
  for (const short of [40, 41, 10]) program.drop(program.ask(short));
  program.ask(40);
  const hole = program.ask(30);
  program.ask(41);
  const stays = program.ask(20);
  const gap = program.distance(stays, hole);
  program.drop(hole);
  const second = program.ask(20);
  const staying = program.distance(second, stays) + gap;
  program.drop(second);
  const ending = program.distance(program.ask(10), stays) + gap;
  program.allocator.check();
  return { staying, ending };
}

test('a block that stays lies beside another that stays, not in a hole between blocks that end', () => {
  expect(placesOf({ groupLives: 0 })).toEqual({ staying: 0, ending: 0 });
  // Behind the block that stays: 71 MiB after the start of the hole, and 20 long.
  expect(placesOf({ groupBytes: 0 })).toEqual({ staying: 91, ending: 0 });
});

test('an arena below groupBytes places by best fit alone', () => {
  expect(placesOf({ groupBytes: 1025 * MIB })).toEqual({ staying: 0, ending: 0 });
  expect(placesOf({ groupBytes: 1024 * MIB })).toEqual({ staying: 91, ending: 0 });
});

test('a block that ends soon is placed by best fit, whatever lies beside it', () => {
  const program = new Program({ groupBytes: 0 });
  program.drop(program.ask(1024));
  program.drop(program.ask(20));
  program.ask(40);
  const hole = program.ask(30);
  const stays = program.ask(41);
  program.ask(42);
  const gap = program.distance(stays, hole);
  program.drop(hole);
  expect(program.distance(program.ask(20), stays)).toBe(-gap);
});

/** A hole of 30 MiB and a place that is only a little better. Says whether the hole is taken, some time after it was a block. */
function prefersHole(waited: number): boolean {
  const program = new Program({ groupBytes: 0 });
  program.drop(program.ask(1024));
  // Lives of 0, and of about 160 requests: not far enough apart.
  for (const short of [40, 41]) program.drop(program.ask(short));
  const long = program.ask(20);
  for (let count = 0; count < 40; count++) program.drop(program.ask(6));
  program.drop(long);
  program.ask(40);
  const hole = program.ask(30);
  program.ask(41);
  const stays = program.ask(20);
  const gap = program.distance(stays, hole);
  for (let count = 0; count < waited; count++) program.drop(program.ask(6));
  program.drop(hole);
  return program.distance(program.ask(20), stays) === -gap;
}

test('a place that is only a little better than the best fit is not taken, unless the fit was that of a fleeting block', () => {
  expect(prefersHole(6)).toBe(true);
  expect(prefersHole(0)).toBe(false);
});

/** A hole that a block which stays would fit exactly. Says whether it is placed there, `waited` requests after the hole was a block. */
function takesHole(waited: number): boolean {
  const program = new Program({ groupBytes: 0 });
  program.drop(program.ask(1024));
  for (const short of [40, 41]) program.drop(program.ask(short));
  program.ask(40);
  const hole = program.allocator.malloc(20 * MIB, 0, 0);
  program.ask(41);
  const stays = program.ask(20);
  const gap = program.distance(stays, hole);
  for (let count = 0; count < waited; count++) program.drop(program.allocator.malloc(6 * MIB, 0, 0));
  program.drop(hole);
  const taken = program.distance(program.ask(20), stays) === -gap;
  program.allocator.check();
  return taken;
}

test('a block that stays keeps out of the place of a fleeting one, even if it fits exactly', () => {
  expect(takesHole(0)).toBe(false);
  expect(takesHole(12)).toBe(false);
  expect(takesHole(13)).toBe(true);
});

test('with a second stream, best fit alone', () => {
  expect(placesOf({ groupBytes: 0 }, 2)).toEqual({ staying: 0, ending: 0 });
});
