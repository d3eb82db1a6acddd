// Properties that hold for every recording, checked on made-up ones: all reports count the same live memory, the call sites of a diff
// add up to the growth, and the diff of a run with itself is empty.
import { describe, expect, it } from 'vitest';
import { PhaseMark } from '../../src/abi/events.ts';
import { ALIGNMENTS } from '../../src/report/alignment.ts';
import { StackMeanings } from '../../src/report/categories/stacks.ts';
import { categoriesAt } from '../../src/report/categories.ts';
import { diffTraces, growthOf } from '../../src/report/diff.ts';
import { LiveCurve, liveAt } from '../../src/report/live-curve.ts';
import { topSites } from '../../src/report/sites.ts';
import { summarizeTrace } from '../../src/trace/summary.ts';
import type { Trace } from '../../src/trace/trace.ts';
import { type Script, type ScriptedBlock, scripted } from '../support/scripted.ts';
import { MIB, type Row } from '../support/training.ts';

function randomOf(seed: number): (below: number) => number {
  let state = seed * 2654435761 + 1;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** Scripts with and without an ending, lambdas on a function's line, one package in two environments, files of one name. */
const FILES = [
  '/home/me/bin/train',
  '/home/me/model.py',
  '/home/me/old/model.py',
  '/home/me/v1.c/loss.py',
  '<stdin>',
  '/a/lib/python3.12/site-packages/kit/layer.py',
  '/b/lib/python3.12/site-packages/kit/layer.py',
  'C:\\me\\data.py',
  '/home/me/fast.pyx',
];
const NAMES = ['main', 'forward', 'Model.forward', 'Other.forward', '<lambda>', '<listcomp>'];
/** They differ by less than what a rounded size shows. */
const SIZES = [1, 512, 513, 4 * MIB, 4 * MIB + 512, 4 * MIB + 1024, 100 * MIB, 100 * MIB + 512, 2 ** 30, 2 ** 30 + 2048];

/** `moved`: the folder that the project lies in; `shift`: how far its lines have moved. */
function program(seed: number, { stacks = true, lost = false, moved = '', shift = 0 } = {}): Trace {
  const random = randomOf(seed);
  const row = (): Row => [`${moved}${FILES[random(FILES.length)]!}`, 1 + shift + random(6), NAMES[random(NAMES.length)]!];
  return scripted((script: Script) => {
    const live: ScriptedBlock[] = [];
    for (let step = 0; step < 6; step++) {
      script.mark(PhaseMark.step);
      for (let turn = 0; turn < 40; turn++) {
        const stack = Array.from({ length: 1 + random(4) }, row);
        const rows = !stacks || random(20) === 0 ? [] : stack;
        const reused = lost && live.length > 0 && random(4) === 0 ? live.splice(random(live.length), 1)[0] : undefined;
        if (reused || live.length < 3 || random(2) === 0) live.push(script.alloc(SIZES[random(SIZES.length)]!, rows, reused?.address));
        else script.free(live.splice(random(live.length), 1)[0]!);
      }
    }
  });
}

const SEEDS = Array.from({ length: 12 }, (_, seed) => seed);
const KINDS = {
  'with stacks': {},
  'without stacks': { stacks: false },
  'with lost frees': { lost: true },
  'without stacks, with lost frees': { stacks: false, lost: true },
};

function diffOf(before: Trace, after: Trace, by?: (typeof ALIGNMENTS)[number]) {
  return diffTraces({ trace: before, file: 'a.weir' }, { trace: after, file: 'b.weir' }, { by });
}

function sum(values: Iterable<number>): number {
  return [...values].reduce((total, value) => total + value, 0);
}

describe.each(Object.entries(KINDS))('recordings %s', (_, options) => {
  it.each(SEEDS)('have one amount of live memory in all reports (%i)', (seed) => {
    const trace = program(seed, options);
    const curve = new LiveCurve(trace);
    expect(curve.peak().bytes).toBe(summarizeTrace(trace).peakLive);
    for (let event = 0; event < trace.events.count; event += 7) {
      const live = curve.peakIn(event, event + 1).bytes;
      const { bytes, ways } = categoriesAt(trace, event);
      expect(liveAt(trace, event)).toBe(live);
      expect([sum(Object.values(bytes)), sum(Object.values(ways))]).toEqual([live, live]);
      const sites = topSites(trace, event, Number.POSITIVE_INFINITY);
      if (sites.length > 0) expect(sum(sites.map((site) => site.bytes))).toBe(live);
    }
  });

  it.each(SEEDS)('do not differ from themselves (%i)', (seed) => {
    const [before, after] = [program(seed, options), program(seed, options)];
    for (const by of ALIGNMENTS) {
      const found = diffOf(before, after, by);
      expect([growthOf(found), found.sites, found.movedFiles, found.editedFiles, found.newLeaks ?? []]).toEqual([0, [], [], [], []]);
    }
  });

  it.each(SEEDS)('differ by sites that add up to the growth, in both directions (%i)', (seed) => {
    const trace = program(seed, options);
    const others = [
      program(seed + 100, options),
      program(seed, { ...options, shift: 1 }),
      program(seed, { ...options, moved: '/mnt' }),
      program(seed + 100, { ...options, moved: '/mnt', shift: 2 }),
      program(seed + 200),
      program(seed + 300, { stacks: false, lost: true }),
    ];
    for (const other of others)
      for (const by of ALIGNMENTS)
        for (const found of [diffOf(trace, other, by), diffOf(other, trace, by)]) {
          expect(sum(found.sites.map((site) => site.after - site.before))).toBe(growthOf(found));
          if (found.categories) expect(sum(found.categories.map((change) => change.after - change.before))).toBe(growthOf(found));
        }
  });
});

describe('requests without stacks', () => {
  it('are told apart by their bytes, which the label shows', () => {
    const one = scripted((script) => [100 * MIB, 100 * MIB + 1024].map((size) => script.alloc(size)));
    const two = scripted((script) => [100 * MIB, 100 * MIB].map((size) => script.alloc(size)));
    expect(diffOf(one, two, 'end').sites.map(({ label, before, after }) => [label, before, after])).toEqual([
      ['requests of 100 MiB (104,858,624 B, no stack recorded)', 100 * MIB + 1024, 0],
      ['requests of 100 MiB (no stack recorded)', 100 * MIB, 200 * MIB],
    ]);
  });
});

describe('a script whose file does not end in .py', () => {
  const rows: readonly Row[] = [['/home/me/bin/train', 20, 'main']];
  it('is Python, not compiled code of a backward pass', () => {
    const trace = scripted((script) => script.alloc(MIB, rows));
    expect(new StackMeanings(trace).of(trace.events.stack[0]!).phase).toBe('forward');
    expect(topSites(trace, 0, 1)[0]!.label).toBe('bin/train:20 main');
  });
});

describe('files and lines that could be taken for others', () => {
  const program = (rows: readonly (readonly [Row, number])[]) =>
    scripted((script) => {
      for (const [row, size] of rows) script.alloc(size * MIB, [row]);
    });

  it('are those of the same path, if one package lies in two environments', () => {
    const [one, other]: Row[] = ['/a', '/b'].map((env) => [`${env}/lib/python3.12/site-packages/kit/layer.py`, 1, 'run']);
    const [before, after] = [
      program([
        [one!, 3],
        [other!, 5],
      ]),
      program([
        [other!, 5],
        [one!, 3],
      ]),
    ];
    expect(diffOf(before, after, 'end').sites).toEqual([]);
  });

  it('count with all bytes, if two lines of one run are one of the other', () => {
    const [model, other, plain, last]: Row[] = (
      [
        [10, 'Model.forward'],
        [10, 'Other.forward'],
        [10, 'forward'],
        [99, 'main'],
      ] as const
    ).map(([line, name]) => ['/me/model.py', line, name]);
    const [before, after] = [
      program([
        [model!, 3],
        [other!, 5],
      ]),
      program([
        [plain!, 9],
        [last!, 2],
      ]),
    ];
    const found = diffOf(before, after, 'end');
    expect(found.sites.map((site) => [site.label, site.before / MIB, site.after / MIB, site.allocationsBefore])).toEqual([
      ['me/model.py:99 main', 0, 2, 0],
      ['me/model.py:10 forward', 8, 9, 2],
    ]);
    expect(growthOf(found)).toBe(3 * MIB);
  });
});
