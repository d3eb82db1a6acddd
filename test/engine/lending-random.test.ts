// Random programs on several streams against an oracle that knows the last use of every byte. `npm run model` takes more seeds, and
// shows that mistakes in the engine are found.
import { describe, expect, test } from 'vitest';
import { assertingEngine } from './drive.ts';
import { compileMutant, RANDOM_MUTANTS } from './lending/mutants.ts';
import { runRandomProgram } from './lending/random-programs.ts';

const ALL = process.env['WEIR_MODEL_ALL'] === '1';
const reason = ALL ? '' : ' (skipped: only npm run model takes the time for it)';
const STEPS = 1500;
/** Seeds of one test. */
const SEEDS = 200;
const FIRST_SEEDS = Array.from({ length: ALL ? 24 : 1 }, (_, index) => 1 + index * SEEDS);
/** A mistake has to show within as many. */
const MOST_SEEDS = 400;

test.each(FIRST_SEEDS)('programs from seed %i on', (first) => {
  const totals = { kernels: 0, waits: 0, unmaps: 0, faults: 0, borrows: 0, stitches: 0 };
  for (let seed = first; seed < first + SEEDS; seed++) {
    try {
      const { oracle, allocator } = runRandomProgram(seed, STEPS, assertingEngine());
      const { borrows, stitches } = allocator.statistics;
      for (const [name, value] of Object.entries({ ...oracle.totals, borrows, stitches })) totals[name as keyof typeof totals] += value;
    } catch (error) {
      throw new Error(`seed ${seed}: ${(error as Error).message}`, { cause: error });
    }
  }
  // Programs in which nothing happens would show nothing.
  for (const total of Object.values(totals)) expect(total).toBeGreaterThan(SEEDS * 10);
});

function firstFailure(module: Awaited<ReturnType<typeof compileMutant>>): string | undefined {
  for (let seed = 1; seed <= MOST_SEEDS; seed++) {
    try {
      runRandomProgram(seed, STEPS, module);
    } catch (error) {
      return `seed ${seed}: ${(error as Error).message}`;
    }
  }
  return undefined;
}

describe('mistakes are found', () => {
  test.skipIf(!ALL).each(RANDOM_MUTANTS.map((mutant) => [mutant.name, mutant] as const))(`engine: %s${reason}`, async (name, mutant) => {
    const failure = firstFailure(await compileMutant(mutant));
    console.log(`killed: engine, ${name}: ${failure}`);
    expect(failure).toBeDefined();
  });
});
