// Profiles of processes are answered through the folder of the run, and only with swap plans that pass their check.
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { InvariantError } from '../../src/base/errors.ts';
import { planProfile } from '../../src/plan/swaps/live/planner.ts';
import { answerProfiles, type SwapWatchOptions } from '../../src/run/swapping/swap-watch.ts';
import { stack } from '../plan/swap-stack.ts';

const MIB = 2 ** 20;
const folder = mkdtempSync(join(tmpdir(), 'weir-swap-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function answer(options: SwapWatchOptions): { plans: string[]; errors: [number, unknown][]; again: () => void } {
  const plans: string[] = [];
  const errors: [number, unknown][] = [];
  const answered = new Map<string, string>();
  const again = () =>
    answerProfiles(folder, answered, {
      budgetMs: 50,
      onPlan: (_pid, _plan, words) => plans.push(words),
      onError: (pid, error) => errors.push([pid, error]),
      ...options,
    });
  again();
  return { plans, errors, again };
}

describe('profiles from a process', () => {
  const profile = { version: 1, pid: 7, ...stack(12, 2000, 64 * MIB, 8 * MIB) };

  test('are answered once, through the folder of the run', () => {
    writeFileSync(join(folder, '7.profile.json'), JSON.stringify(profile));
    writeFileSync(join(folder, '8.profile.json'), '{"version":1');
    const { plans, errors, again } = answer({});
    again();
    expect(plans).toHaveLength(1);
    expect(errors.map(([pid]) => pid)).toEqual([8]);
    const plan = JSON.parse(readFileSync(join(folder, '7.swap.json'), 'utf8'));
    expect(plan).toMatchObject({ version: 1, key: 'stack' });
    expect(existsSync(join(folder, '8.swap.json'))).toBe(false);
  });

  test('get no plan if it does not pass its check', () => {
    writeFileSync(join(folder, '9.profile.json'), JSON.stringify(profile));
    const planner: typeof planProfile = (given, options) => {
      const plan = planProfile(given, options);
      return { ...plan, moves: plan.moves.map((move, at) => (at === 0 ? { ...move, back: move.drop } : move)) };
    };
    const { plans, errors } = answer({ planner });
    expect(plans).toEqual([]);
    const [, error] = errors.find(([pid]) => pid === 9)!;
    expect(error).toBeInstanceOf(InvariantError);
    expect(String(error)).toContain('the swap plan did not pass its check: ');
    expect(existsSync(join(folder, '9.swap.json'))).toBe(false);
  });
});
