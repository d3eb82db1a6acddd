// Emergency swap-outs in a replay: what leaves for a request, when it comes back, and what is not swapped.
import { describe, expect, test } from 'vitest';
import { chooseAllocators } from '../../src/allocator/registry.ts';
import { MIB } from '../../src/base/bytes.ts';
import { whatIf } from '../../src/replay/what-if.ts';
import { RunRecorder } from '../fit/program.ts';

const [weir] = chooseAllocators('weir');
const STATE = 4;
const EACH = 8 * MIB;

/** Four blocks of state are made, an optimizer ends, a large block lives for a while, and an optimizer begins while `kept` lives. */
function replayed({
  large,
  kept = 0,
  capacity,
  freed = [],
}: {
  large: number;
  kept?: number;
  capacity: number;
  freed?: readonly number[];
}) {
  const recorder = new RunRecorder(false);
  const state = Array.from({ length: STATE }, (_, index) => recorder.alloc(EACH, ['state', index]));
  const events = { ends: STATE, begins: 0 };
  recorder.mark('ends');
  const block = recorder.alloc(large, ['large', 0]);
  for (const index of freed) recorder.free(state[index]!);
  recorder.free(block);
  if (kept > 0) recorder.alloc(kept, ['kept', 0]);
  events.begins = STATE + 1 + 1 + 2 * freed.length + 2 + (kept > 0 ? 1 : 0);
  recorder.mark('begins');
  const trace = recorder.finish();
  const swappable = { allocations: [0, 1, 2, 3], ends: new Set([events.ends]), begins: new Set([events.begins]) };
  const run = (of?: typeof swappable) => whatIf(trace, weir!, { capacity }, { swappable: of });
  return { with: run(swappable), without: run(), never: run({ ...swappable, ends: new Set<number>() }) };
}

describe('emergency swap-outs', () => {
  test('serve a request that finds no memory otherwise', () => {
    const found = replayed({ large: 40 * MIB, capacity: 56 * MIB });
    expect([found.with.ooms, found.without.ooms]).toEqual([0, 1]);
    expect([found.with.retries, found.without.retries]).toEqual([0, 1]);
    // Two of the four blocks are enough.
    expect(found.with.peakAllocated).toBe(40 * MIB + 2 * EACH);
    // All state is back at the end.
    expect(found.with.finalReserved).toBeGreaterThanOrEqual(STATE * EACH);
  });

  test('swap nothing out before an optimizer has ended', () => {
    expect(replayed({ large: 40 * MIB, capacity: 56 * MIB }).never.ooms).toBe(1);
  });

  test('fail if all state is too little', () => {
    expect(replayed({ large: 64 * MIB, capacity: 56 * MIB }).with.ooms).toBe(1);
  });

  test('fail if state finds no memory when it comes back', () => {
    const found = replayed({ large: 40 * MIB, kept: 40 * MIB, capacity: 56 * MIB });
    expect(found.with.ooms).toBe(2);
    expect(replayed({ large: 40 * MIB, kept: 24 * MIB, capacity: 56 * MIB }).with.ooms).toBe(0);
  });

  test('do not bring back what the program has freed', () => {
    // The first two were swapped out for the large block.
    expect(replayed({ large: 40 * MIB, kept: 40 * MIB, capacity: 56 * MIB, freed: [0, 1] }).with.ooms).toBe(0);
  });
});
