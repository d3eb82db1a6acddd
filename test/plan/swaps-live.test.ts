// Swap plans for running processes: from the profiles that they send, checked by code that shares nothing with the planner.
import { existsSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { InputError } from '../../src/base/errors.ts';
import { readAccessJson } from '../../src/plan/files/access-inputs.ts';
import { type SwapStep, swapStepOf } from '../../src/plan/swaps/accesses.ts';
import { loadCurve, MIN_SWAP_BYTES } from '../../src/plan/swaps/gaps.ts';
import { followMoves } from '../../src/plan/swaps/live/following.ts';
import { describePlan, planProfile } from '../../src/plan/swaps/live/planner.ts';
import { readSwapProfile, type SwapProfile } from '../../src/plan/swaps/live/profile.ts';
import { verifySwapPlan } from '../../src/plan/swaps/live/verifier.ts';
import { ROOT } from '../support/command.ts';
import { H200, SLOW, stack } from './swap-stack.ts';

const MIB = 2 ** 20;

describe('a plan for a profile', () => {
  test('cuts the peak at no stall where the link allows it', () => {
    const profile = stack(24, 2000, 64 * MIB, 16 * MIB);
    const plan = planProfile(profile, { budgetMs: 400 });
    expect(verifySwapPlan(profile, plan)).toEqual([]);
    expect(plan.expected.stalls).toBe(0);
    expect(plan.expected.peak).toBeLessThan(0.5 * plan.expected.from);
    expect(plan.moves.some((move) => move.class === 'item')).toBe(true);
    expect(followMoves(profile, plan.moves).peak).toBe(plan.expected.peak);
    expect(describePlan(plan)).toMatch(/^swap plan: peak 1\.9 -> \d\.\d GiB, 0 stalls expected/);
  });

  test('stops at the limit asked for', () => {
    const free = stack(24, 2000, 64 * MIB, 16 * MIB);
    const limit = 0.8 * Math.max(...free.ticks.peak);
    const plan = planProfile({ ...free, limit }, { budgetMs: 400 });
    expect(plan.expected.keepsLimit).toBe(true);
    expect(plan.expected.stalls).toBe(0);
    expect(plan.expected.moved).toBeLessThan(planProfile(free, { budgetMs: 400 }).expected.moved);
  });

  test('saves less, and moves less, where a share of it is asked for', () => {
    const free = stack(24, 2000, 64 * MIB, 16 * MIB);
    const whole = planProfile(free, { budgetMs: 400 }).expected;
    const part = planProfile({ ...free, share: 0.4 }, { budgetMs: 400 }).expected;
    const saved = (whole.from - part.peak) / (whole.from - whole.peak);
    expect(saved).toBeGreaterThan(0.4);
    expect(saved).toBeLessThan(0.6);
    expect(part.moved).toBeLessThan(0.7 * whole.moved);
    expect(part.stalls).toBe(0);
  });

  test('below what costs nothing it still keeps the limit, and says what waiting is to be expected', () => {
    const slow = stack(24, 500, 64 * MIB, 16 * MIB, { copies: SLOW });
    const free = planProfile(slow, { budgetMs: 400 });
    const limit = Math.round(0.75 * free.expected.peak);
    const plan = planProfile({ ...slow, limit }, { budgetMs: 400 });
    expect(verifySwapPlan({ ...slow, limit }, plan)).toEqual([]);
    expect(plan.expected.keepsLimit).toBe(true);
    expect(plan.expected.peak).toBeLessThanOrEqual(limit);
    expect(plan.expected.stallUs).toBeGreaterThan(0);
  });

  test('says so when a limit cannot be kept at all', () => {
    const plan = planProfile(stack(8, 2000, 64 * MIB, 16 * MIB, { limit: MIB }), { budgetMs: 100 });
    expect(plan.expected.keepsLimit).toBe(false);
    expect(describePlan(plan)).toContain('; the limit of 0.0 GiB cannot be kept');
  });

  test('lets parameters leave only where nothing else keeps the limit', () => {
    const make = (share?: number) => {
      const profile = stack(24, 2000, 64 * MIB, 8 * MIB, { weights: 32 * MIB, copies: SLOW });
      return share === undefined ? profile : { ...profile, limit: Math.round(share * Math.max(...profile.ticks.peak)) };
    };
    const layersIn = (plan: ReturnType<typeof planProfile>) => plan.moves.filter((move) => move.class === 'layer').length;
    const free = planProfile(make(), { budgetMs: 200 });
    const mild = planProfile(make(0.8), { budgetMs: 200 });
    expect([layersIn(free), layersIn(mild)]).toEqual([0, 0]);
    const hard = make(0.36);
    const plan = planProfile(hard, { budgetMs: 200 });
    expect(verifySwapPlan(hard, plan)).toEqual([]);
    expect(layersIn(plan)).toBeGreaterThan(0);
    expect(free.expected.peak).toBeGreaterThan(hard.limit!);
    expect(plan.expected.peak).toBeLessThan(free.expected.peak);
    expect(followMoves(hard, plan.moves)).toMatchObject({ misses: 0, peak: plan.expected.peak });
  });

  test.each([
    ['gpt2xl', 0.28],
    ['opt1b3', 0.24],
    ['vgg16', 0.11],
  ])('of a step of %s, as watched on an H200, cuts the peak at no stall, and neighbours leave together', (name, share) => {
    const profile = readSwapProfile(JSON.parse(readFileSync(new URL(`test/plan/profiles/${name}-h200.json`, ROOT), 'utf8')));
    const plan = planProfile(profile);
    expect(verifySwapPlan(profile, plan)).toEqual([]);
    expect(plan.expected.stalls).toBe(0);
    expect(plan.expected.peak).toBeLessThan((1 - share) * plan.expected.from);
    const items = plan.moves.flatMap((move) => (move.class === 'item' ? [move.index] : [])).sort((a, b) => a - b);
    expect(items.length).toBeGreaterThan(0);
    const gaps = items.filter((item, index) => index > 0 && item !== items[index - 1]! + 1);
    expect(gaps.length).toBeLessThanOrEqual(1);
  });

  test.each(['gpt2xl', 'opt1b3', 'vgg16'])('of a step of %s says what no plan can fall below, and why', (name) => {
    const profile = readSwapProfile(JSON.parse(readFileSync(new URL(`test/plan/profiles/${name}-h200.json`, ROOT), 'utf8')));
    const { peak, bound } = planProfile(profile, { budgetMs: 400 }).expected;
    const { live, idle, out, back } = bound!;
    expect(bound!.peak).toBeLessThanOrEqual(peak);
    expect(bound!.peak).toBe(live - Math.min(out, back));
    expect(Math.max(out, back)).toBeLessThanOrEqual(idle);
    expect(live).toBeLessThanOrEqual(Math.max(...profile.ticks.peak));
    // With a link that takes no time, everything idle could be away.
    const copies = { fixedUs: 0, outAlone: 1e18, outBoth: 1e18, inAlone: 1e18, inBoth: 1e18 };
    const instant = planProfile({ ...profile, copies }, { budgetMs: 50 }).expected.bound!;
    expect(instant.peak).toBeLessThanOrEqual(bound!.peak);
    expect(instant.peak).toBe(instant.live - instant.idle);
  });

  test('uses no more host memory than there is', () => {
    const hostLimit = 300 * MIB;
    const plan = planProfile(stack(24, 2000, 64 * MIB, 16 * MIB, { hostLimit }), { budgetMs: 200 });
    expect(plan.hostBytes).toBeLessThanOrEqual(hostLimit);
    expect(plan.moves.length).toBeGreaterThan(0);
  });

  test('moves nothing that others hold, or that is never used', () => {
    const profile = stack(12, 2000, 64 * MIB, 0);
    const records = profile.records.map((record, index) => (index % 2 ? { ...record, sole: -1 } : { ...record, uses: [] }));
    expect(planProfile({ ...profile, records, items: [] }, { budgetMs: 50 }).moves).toEqual([]);
  });

  test('holds for random steps', () => {
    const shape = fc.record({
      layers: fc.integer({ min: 1, max: 14 }),
      layerUs: fc.integer({ min: 0, max: 4000 }),
      activation: fc.integer({ min: 1, max: 90 }),
      state: fc.integer({ min: 0, max: 40 }),
      weights: fc.integer({ min: 0, max: 60 }),
      share: fc.double({ min: 0.2, max: 1, noNaN: true }),
      limited: fc.boolean(),
      slow: fc.boolean(),
    });
    fc.assert(
      fc.property(shape, ({ layers, layerUs, activation, state, weights, share, limited, slow }) => {
        const base = stack(layers, layerUs, activation * MIB, state * MIB, { weights: weights * MIB, ...(slow ? { copies: SLOW } : {}) });
        const profile = limited ? { ...base, limit: Math.round(share * Math.max(...base.ticks.peak)) } : base;
        const plan = planProfile(profile, { budgetMs: 15 });
        expect(verifySwapPlan(profile, plan)).toEqual([]);
        const followed = followMoves(profile, plan.moves);
        expect(followed.peak).toBe(plan.expected.peak);
        expect(followed.peak).toBeLessThanOrEqual(plan.expected.from);
        if (!limited) expect(followed.stalls).toBe(0);
        // A limit may be kept by waiting, which the bound does not allow for.
        if (followed.stalls === 0) expect(followed.peak).toBeGreaterThanOrEqual(plan.expected.bound!.peak - 1);
      }),
      { numRuns: 60 },
    );
  });
});

describe('profiles from a process', () => {
  const asJson = (profile: SwapProfile) => ({ version: 1, pid: 7, ...profile });

  test('that make no sense are refused', () => {
    const good = asJson(stack(3, 100, MIB, MIB));
    expect(() => readSwapProfile(good)).not.toThrow();
    const spoilt = [
      null,
      [],
      { ...good, version: 2 },
      { ...good, ticks: { us: [], peak: [] } },
      { ...good, ticks: { ...good.ticks, us: good.ticks.us.toReversed() } },
      { ...good, ticks: { ...good.ticks, peak: [1] } },
      { ...good, records: [{ size: 1, first: 0, sole: 99, uses: [] }] },
      { ...good, records: [{ size: 1, first: 0, sole: 0, uses: [0.5] }] },
      { ...good, items: [{ size: 1, pre: 0, post: -1 }] },
      { ...good, passages: [{ size: 1, left: -1, needed: 2 }] },
      { ...good, passages: {} },
      { ...good, copies: { ...H200, inBoth: 0 } },
      { ...good, hostLimit: 'all' },
    ];
    for (const data of spoilt) expect(() => readSwapProfile(data)).toThrow(InputError);
  });
});

/**
 * A recorded step as a process would have told it: a block idle for long between two uses is taken to be saved for backward at the
 * first and unpacked at the second; blocks that only the end of the step touches are optimizer state.
 */
function profileOf(step: SwapStep): SwapProfile {
  const { periodUs } = step;
  const big = step.blocks.filter((block) => block.size >= MIN_SWAP_BYTES && block.accesses.length > 0);
  const isState = (block: (typeof big)[number]) => block.wholeRun && block.accesses[0]!.fromUs > 0.6 * periodUs;
  const states = big.filter(isState);
  const updates = Math.min(periodUs * 0.999, ...states.map((block) => block.accesses[0]!.fromUs));
  const saved = big.flatMap((block) => {
    if (block.wholeRun || block.fromUs < 0 || block.toUs > periodUs) return [];
    let best: { from: number; to: number } | undefined;
    for (let at = 1; at < block.accesses.length; at++) {
      const from = Math.max(...block.accesses.slice(0, at).map((access) => access.toUs));
      const to = block.accesses[at]!.fromUs;
      if (to < updates && (!best || to - from > best.to - best.from)) best = { from, to };
    }
    return best && best.to - best.from > 0.002 * periodUs ? [{ size: block.size, ...best }] : [];
  });
  const times = [...new Set([0, updates, ...saved.flatMap(({ from, to }) => [from, to])])].sort((a, b) => a - b);
  const tickOf = (time: number) => times.indexOf(time);
  const curve = loadCurve(step);
  const peak = times.map((from, tick) => {
    const to = times[tick + 1] ?? periodUs;
    let most = 0;
    curve.timeUs.forEach((time, at) => {
      if (time < to && (curve.timeUs[at + 1] ?? periodUs) > from) most = Math.max(most, curve.bytes[at]!);
    });
    return most;
  });
  return {
    key: step.name,
    periodUs,
    ticks: { us: times, peak },
    // Others let go of it a tick after it is saved.
    records: saved.map(({ size, from, to }) => ({ size, first: tickOf(from), sole: tickOf(from) + 1, uses: [tickOf(to)] })),
    items: states.map(({ size }) => ({ size, pre: tickOf(updates), post: 0 })),
    passages: [],
    copies: H200,
    hostLimit: 2 ** 40,
  };
}

describe('recorded steps', () => {
  const shared = new URL('../../../shared/traces/access/', import.meta.url);
  const expectedCut: Readonly<Record<string, number>> = { 'vgg16-b100': 0.1, 'resnet50-b100': 0.3, 'opt1b3-R': 0.25 };
  for (const name of Object.keys(expectedCut)) {
    const path = new URL(`${name}.access.json.gz`, shared);
    test.skipIf(!existsSync(path))(`${name}: no stall, nothing used while away`, () => {
      const step = swapStepOf(readAccessJson(gunzipSync(readFileSync(path)).toString()), 1);
      const profile = profileOf(step);
      const plan = planProfile(profile, { budgetMs: 4000 });
      expect(verifySwapPlan(profile, plan)).toEqual([]);
      const followed = followMoves(profile, plan.moves);
      expect(followed.stalls).toBe(0);
      expect(followed.misses).toBe(0);
      expect(followed.peak).toBe(plan.expected.peak);
      const { from, peak, moved, periodUs } = plan.expected;
      const cut = 1 - peak / from;
      const lower = { ...profile, limit: Math.round(peak * 0.85) };
      const limited = planProfile(lower, { budgetMs: 1000 });
      expect(verifySwapPlan(lower, limited)).toEqual([]);
      const waits = `${((100 * limited.expected.stallUs) / periodUs).toFixed(1)} % waiting at ${(limited.expected.peak / 2 ** 30).toFixed(2)}`;
      console.log(
        `${name}: ${(from / 2 ** 30).toFixed(2)} -> ${(peak / 2 ** 30).toFixed(2)} GiB, ${(100 * cut).toFixed(1)} % less, ` +
          `${(moved / 2 ** 30).toFixed(2)} GiB moved in ${(periodUs / 1000).toFixed(0)} ms by ${plan.moves.length} moves, ${profile.ticks.us.length} ticks; ` +
          `${profile.items.length} state; 15 % lower: keeps ${limited.expected.keepsLimit}, ${waits}`,
      );
      expect(cut).toBeGreaterThan(expectedCut[name]!);
    });
  }
});
