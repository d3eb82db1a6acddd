// The check of swap plans as they are sent: every plan of the planner passes, every kind of wrong move is found.
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { SwapExpectation, SwapMove, SwapPlan } from '../../src/abi/exchange.ts';
import { planProfile } from '../../src/plan/swaps/live/planner.ts';
import { readSwapProfile, type SwapProfile } from '../../src/plan/swaps/live/profile.ts';
import { verifySwapPlan } from '../../src/plan/swaps/live/verifier.ts';
import { ROOT } from '../support/command.ts';
import { SLOW, stack } from './swap-stack.ts';

const MIB = 2 ** 20;

/** As the process gets it: through JSON. */
function sentPlan(profile: SwapProfile, budgetMs: number): SwapPlan {
  return JSON.parse(JSON.stringify(planProfile(profile, { budgetMs }))) as SwapPlan;
}

function recorded(name: string): SwapProfile {
  return readSwapProfile(JSON.parse(readFileSync(new URL(`test/plan/profiles/${name}-h200.json`, ROOT), 'utf8')));
}

const limited = (profile: SwapProfile, share: number): SwapProfile => ({
  ...profile,
  limit: Math.round(share * Math.max(...profile.ticks.peak)),
});

describe('plans of the planner pass', () => {
  test.each(['gpt2xl', 'opt1b3', 'vgg16'])('for a step of %s, as watched on an H200', (name) => {
    const profile = recorded(name);
    for (const given of [
      profile,
      limited(profile, 0.6),
      { ...profile, hostLimit: 512 * MIB },
      { ...limited(profile, 0.6), hostLimit: 2048 * MIB },
    ]) {
      const plan = sentPlan(given, 300);
      expect(plan.moves.length).toBeGreaterThan(0);
      expect(verifySwapPlan(given, plan)).toEqual([]);
    }
  });

  test('for random steps', () => {
    const shape = fc.record({
      layers: fc.integer({ min: 1, max: 14 }),
      layerUs: fc.integer({ min: 0, max: 4000 }),
      activation: fc.integer({ min: 1, max: 90 }),
      state: fc.integer({ min: 0, max: 40 }),
      weights: fc.integer({ min: 0, max: 60 }),
      share: fc.option(fc.double({ min: 0.1, max: 1, noNaN: true }), { nil: undefined }),
      host: fc.option(fc.integer({ min: 0, max: 600 }), { nil: undefined }),
      uses: fc.array(fc.nat({ max: 4 }), { maxLength: 14 }),
      fixedUs: fc.constantFrom(0, 15),
      slow: fc.boolean(),
      // Ticks at which the optimizer's step begins and ends, as shares of the step; by default at the end of the step.
      update: fc.option(fc.tuple(fc.double({ min: 0, max: 1, noNaN: true }), fc.nat({ max: 3 })), { nil: undefined }),
    });
    fc.assert(
      fc.property(shape, ({ layers, layerUs, activation, state, weights, share, host, uses, fixedUs, slow, update }) => {
        const base = stack(layers, layerUs, activation * MIB, state * MIB, { weights: weights * MIB, ...(slow ? { copies: SLOW } : {}) });
        const count = base.ticks.us.length;
        // Some tensors are used a second time.
        const records = base.records.map((record, index) => {
          const later = record.uses[0]! + (uses[index] ?? 0);
          return later > record.uses[0]! && later < count ? { ...record, uses: [record.uses[0]!, later] } : record;
        });
        const pre = update && Math.min(count - 1, Math.floor(update[0] * count));
        const items =
          pre === undefined ? base.items : base.items.map((item) => ({ ...item, pre, post: Math.min(count - 1, pre + update![1]) }));
        const varied: SwapProfile = {
          ...base,
          records,
          items,
          copies: { ...base.copies, fixedUs },
          hostLimit: host === undefined ? base.hostLimit : host * MIB,
        };
        const profile = share === undefined ? varied : limited(varied, share);
        expect(verifySwapPlan(profile, sentPlan(profile, 10))).toEqual([]);
      }),
      { numRuns: 150 },
    );
  });
});

describe('plans pass for tensors that come and go at random', () => {
  const tick = fc.double({ min: 0, max: 0.999, noNaN: true });
  const shape = fc.record({
    gapsUs: fc.array(fc.integer({ min: 0, max: 20_000 }), { minLength: 2, maxLength: 30 }),
    saved: fc.array(fc.tuple(fc.integer({ min: 1, max: 200 }), tick, tick, tick, tick), { maxLength: 16 }),
    states: fc.array(fc.tuple(fc.integer({ min: 1, max: 100 }), tick, tick), { maxLength: 8 }),
    layers: fc.array(fc.tuple(fc.integer({ min: 1, max: 100 }), tick, tick), { maxLength: 4 }),
    host: fc.integer({ min: 0, max: 1000 }),
    share: fc.option(fc.double({ min: 0, max: 1, noNaN: true }), { nil: undefined }),
  });

  test('with and without a limit, in little host memory', () => {
    fc.assert(
      fc.property(shape, ({ gapsUs, saved, states, layers, host, share }) => {
        const count = gapsUs.length;
        const at = (part: number) => Math.floor(part * count);
        const us = gapsUs.map((_, index) => gapsUs.slice(0, index).reduce((sum, gap) => sum + gap, 0));
        const records = saved.map(([size, ...parts]) => {
          const [first, sole, ...uses] = parts.map(at).sort((a, b) => a - b) as [number, number, number, number];
          return { size: size * MIB, first, sole, uses };
        });
        const always = [...states, ...layers].reduce((sum, [size]) => sum + size * MIB, 0);
        const live = (now: number) =>
          records.reduce((sum, { size, first, uses }) => sum + (first <= now && now <= Math.max(...uses) ? size : 0), always);
        const profile: SwapProfile = {
          key: 'random',
          periodUs: us.at(-1)! + gapsUs.at(-1)!,
          ticks: { us, peak: us.map((_, now) => live(now)) },
          records,
          items: states.map(([size, pre, post]) => ({ size: size * MIB, pre: at(pre), post: at(post) })),
          passages: layers.map(([size, left, needed]) => ({ size: size * MIB, left: at(left), needed: at(needed) })),
          copies: SLOW,
          hostLimit: host * MIB,
        };
        const given = share === undefined ? profile : limited(profile, share);
        expect(verifySwapPlan(given, sentPlan(given, 5))).toEqual([]);
      }),
      { numRuns: 300 },
    );
  });
});

describe('a wrong move is found', () => {
  const profile = limited(stack(24, 2000, 64 * MIB, 16 * MIB, { weights: 32 * MIB, copies: SLOW }), 0.36);
  const plan = sentPlan(profile, 300);
  /** State that is updated in mid-step: its moves go past the end of the step. */
  const middle: SwapProfile = {
    ...profile,
    limit: undefined,
    items: profile.items.map((item) => ({ ...item, pre: 40, post: 41 })),
  };
  const middlePlan = sentPlan(middle, 300);
  const of = (kind: SwapMove['class']) => plan.moves.findIndex((move) => move.class === kind);
  const change = (at: number, changed: (move: SwapMove) => Partial<SwapMove>): SwapPlan => ({
    ...plan,
    moves: plan.moves.map((move, index) => (index === at ? { ...move, ...changed(move) } : move)),
  });
  const expecting = (changed: Partial<SwapExpectation>): SwapPlan => ({ ...plan, expected: { ...plan.expected, ...changed } });
  const record = of('record');
  const item = of('item');
  const layer = of('layer');
  const count = profile.ticks.us.length;

  test('in plans that are right otherwise, with moves of every class', () => {
    expect([record, item, layer].every((at) => at >= 0)).toBe(true);
    expect(plan.expected.stallUs).toBeGreaterThan(1000);
    expect(verifySwapPlan(profile, plan)).toEqual([]);
    expect(middlePlan.moves.some((move) => move.class === 'item' && move.back < move.out)).toBe(true);
    expect(verifySwapPlan(middle, middlePlan)).toEqual([]);
  });

  const moves: [string, SwapPlan, RegExp][] = [
    ['of a tensor that is not there', change(record, () => ({ index: profile.records.length })), /not in the profile/],
    ['of a class that is not there', change(record, () => ({ class: 'tensor' as SwapMove['class'] })), /not in the profile/],
    ['of another size', change(item, ({ size }) => ({ size: size - 512 })), /bytes, and item/],
    ['at a tick past the end', change(record, () => ({ back: count })), new RegExp(`tick ${count}, and the step has ${count}`)],
    ['at half a tick', change(record, ({ out }) => ({ out: out + 0.5 })), /has tick/],
    [
      'out before the last holder has let go',
      change(record, ({ index }) => ({ out: profile.records[index]!.sole - 1 })),
      /leaves while it is in use/,
    ],
    ['out while the optimizer is at it', change(item, () => ({ out: 0 })), /leaves while it is in use/],
    [
      'out before the forward pass is over',
      change(layer, ({ index }) => ({ out: profile.passages[index]!.left - 1 })),
      /leaves while it is in use/,
    ],
    [
      'back after backward needs it',
      change(record, ({ index }) => ({ back: profile.records[index]!.uses[0]! + 1 })),
      /is used while it is on the host/,
    ],
    ['back after the optimizer needs it', change(item, ({ out }) => ({ back: out })), /is used while it is on the host|is not on the host/],
    [
      'back after its layer needs it',
      change(layer, ({ index }) => ({ back: profile.passages[index]!.needed + 1 })),
      /is used while it is on the host/,
    ],
    ['back before it was dropped', change(record, ({ drop }) => ({ back: drop - 1 })), /is not on the host/],
    [
      'dropped at the tick at which it leaves',
      change(record, ({ out }) => ({ drop: out })),
      /without a copy out|before its memory was freed/,
    ],
    ['dropped before it leaves', change(record, ({ out }) => ({ drop: out - 1 })), /without a copy out|before its memory was freed/],
    ['twice', { ...plan, moves: [...plan.moves, { ...plan.moves[record]!, turn: 10_000 }] }, /moves twice/],
    ['in the same turn as another', change(record, () => ({ turn: plan.moves[item]!.turn })), /as another move has/],
    ['in no turn', change(record, () => ({ turn: -1 })), /has turn -1/],
    ['dropped later than the peak says', change(record, ({ back }) => ({ drop: back - 1 })), /the plan expects/],
    ['left out', { ...plan, moves: plan.moves.toSpliced(item, 1) }, /bytes moved/],
  ];
  test.each(moves)('%s', (_, wrong, message) => {
    const faults = verifySwapPlan(profile, wrong);
    expect(faults.map((fault) => fault.message).join('\n')).toMatch(message);
  });

  const { expected } = plan;
  const claims: [string, SwapPlan, RegExp][] = [
    ['another version', { ...plan, version: 2 as 1 }, /of version 2/],
    ['another step', { ...plan, key: 'other' }, /for step other/],
    ['a lower peak', expecting({ peak: expected.peak - 1 }), /a peak of/],
    ['a higher peak', expecting({ peak: expected.peak + 1 }), /a peak of/],
    ['another peak without swapping', expecting({ from: expected.from + 1 }), /without swapping/],
    ['fewer stalls', expecting({ stalls: 0 }), /expects 0 stalls/],
    ['more stalls', expecting({ stalls: 10_000 }), /expects 10000 stalls/],
    ['shorter stalls', expecting({ stallUs: expected.stallUs / 2 }), /expects stalls of/],
    ['fewer bytes moved', expecting({ moved: expected.moved - 512 }), /bytes moved/],
    ['another period', expecting({ periodUs: expected.periodUs + 1 }), /a period of/],
    ['another limit', expecting({ limit: 1 }), /a limit of/],
    ['that the limit is kept, or not', expecting({ keepsLimit: !expected.keepsLimit }), /keep the limit/],
    ['less host memory', { ...plan, hostBytes: plan.hostBytes - 1 }, /bytes of host memory, and its moves need/],
  ];
  test.each(claims)('in a plan that claims %s', (_, wrong, message) => {
    const faults = verifySwapPlan(profile, wrong);
    expect(faults.map((fault) => fault.message).join('\n')).toMatch(message);
  });

  test('that needs more host memory than there is', () => {
    const [fault] = verifySwapPlan({ ...profile, hostLimit: plan.hostBytes - 1 }, plan);
    expect(fault!.message).toContain('above the limit of');
  });

  test('past the end of the step: back too late in the next one', () => {
    const at = middlePlan.moves.findIndex((move) => move.class === 'item' && move.back < move.out);
    const late = middlePlan.moves.map((move, index) => (index === at ? { ...move, back: 41 } : move));
    expect(verifySwapPlan(middle, { ...middlePlan, moves: late })[0]!.message).toMatch(/is used while it is on the host/);
    const early = middlePlan.moves.map((move, index) => (index === at ? { ...move, out: 41 } : move));
    expect(verifySwapPlan(middle, { ...middlePlan, moves: early })[0]!.message).toMatch(/leaves while it is in use/);
  });
});
