// The offsets planner: every layout passes the verifier, and the exact search finds what brute force finds.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { InputError } from '../../src/base/errors.ts';
import { readBufferCsv } from '../../src/plan/files/buffer-csv.ts';
import { type Buffer, spansOnCircle, withoutGaps } from '../../src/plan/offsets/buffers.ts';
import { ExactSearch } from '../../src/plan/offsets/exact.ts';
import { prepareExact } from '../../src/plan/offsets/exact-tables.ts';
import { fitInOrder } from '../../src/plan/offsets/first-fit.ts';
import { compile, findNeighbours } from '../../src/plan/offsets/instance.ts';
import { measure, orderBy } from '../../src/plan/offsets/orders.ts';
import { planOffsets } from '../../src/plan/offsets/planner.ts';
import { fitSkyline } from '../../src/plan/offsets/skyline.ts';
import { verifyOffsets } from '../../src/plan/offsets/verifier.ts';
import { bruteForce, meet, oddBuffers, smallBuffers } from './plan-support.ts';

function identity(count: number): Int32Array {
  return Int32Array.from({ length: count }, (_, index) => index);
}

describe('instance', () => {
  test('two buffers share a section if and only if they are live together', () => {
    fc.assert(
      fc.property(oddBuffers, (buffers) => {
        const { start, list } = findNeighbours(compile(buffers));
        buffers.forEach((buffer, index) => {
          const found = [...list.subarray(start[index]!, start[index + 1]!)];
          const expected = buffers.flatMap((other, at) => (at !== index && meet(buffer, other) ? [at] : []));
          expect(found).toEqual(expected);
        });
      }),
    );
  });

  test('the lower bound is the largest load', () => {
    fc.assert(
      fc.property(oddBuffers, (buffers) => {
        const loads = Array.from({ length: 10 }, (_, time) =>
          buffers
            .filter((buffer) => buffer.spans.some((span) => span.from <= time && time < span.to))
            .reduce((sum, buffer) => sum + buffer.size, 0),
        );
        expect(compile(buffers).lowerBound).toBe(Math.max(...loads));
      }),
    );
  });
});

describe('placements', () => {
  test('first fit, best fit and skyline never overlap', () => {
    fc.assert(
      fc.property(oddBuffers, (buffers) => {
        const instance = compile(buffers);
        const measures = measure(instance);
        for (const order of [
          identity(buffers.length),
          orderBy(measures, ['size', '-birth']),
          orderBy(measures, ['tension', 'width', 'area']),
        ]) {
          for (const layout of [fitInOrder(instance, order, 'first'), fitInOrder(instance, order, 'best'), fitSkyline(instance, order)]) {
            expect(verifyOffsets(buffers, layout)).toEqual([]);
          }
        }
      }),
    );
  });

  test('many short lives go through the windows of first fit unharmed', () => {
    const buffers: Buffer[] = Array.from({ length: 3000 }, (_, index) => ({
      id: String(index),
      size: 1 + ((index * 7919) % 97),
      alignment: 1,
      spans: [{ from: index, to: index + 1 + ((index * 31) % (index % 50 === 0 ? 900 : 40)) }],
    }));
    const instance = compile(buffers);
    for (const fit of ['first', 'best'] as const)
      expect(verifyOffsets(buffers, fitInOrder(instance, orderBy(measure(instance), ['size']), fit))).toEqual([]);
  });
});

describe('exact search', () => {
  test('finds the footprint that brute force finds, and shows that one less is impossible', () => {
    fc.assert(
      fc.property(smallBuffers, (buffers) => {
        const smallest = bruteForce(buffers);
        const tables = prepareExact(compile(buffers));
        const decide = (capacity: number, rank: Int32Array) =>
          new ExactSearch(tables, capacity, { rank, nodeLimit: Number.POSITIVE_INFINITY }).run();
        for (const rank of [identity(buffers.length), identity(buffers.length).reverse()]) {
          expect(decide(smallest, rank)).toBe('found');
          expect(decide(smallest - 1, rank)).toBe('impossible');
        }
      }),
      { numRuns: 400 },
    );
  });

  test('the same with gaps, circles and alignment', () => {
    fc.assert(
      fc.property(
        oddBuffers.map((buffers) => buffers.slice(0, 6)),
        (buffers) => {
          const smallest = bruteForce(buffers);
          const tables = prepareExact(compile(buffers));
          const search = new ExactSearch(tables, smallest, { rank: identity(buffers.length), nodeLimit: Number.POSITIVE_INFINITY });
          expect(search.run()).toBe('found');
          expect(verifyOffsets(buffers, { offsets: search.offsets, footprint: smallest })).toEqual([]);
          const less = new ExactSearch(tables, smallest - 1, { rank: identity(buffers.length), nodeLimit: Number.POSITIVE_INFINITY });
          expect(less.run()).toBe('impossible');
        },
      ),
      { numRuns: 400 },
    );
  });
});

describe('planOffsets', () => {
  test('is verified, never below the bound, and optimal where it says so', () => {
    fc.assert(
      fc.property(smallBuffers, (buffers) => {
        const plan = planOffsets(buffers, { budgetMs: 200 });
        expect(plan.footprint).toBeGreaterThanOrEqual(plan.lowerBound);
        expect(plan.optimal).toBe(true);
        expect(plan.footprint).toBe(bruteForce(buffers));
      }),
      { numRuns: 60 },
    );
  });

  test('keeps fixed offsets where they are', () => {
    const buffers: Buffer[] = [
      { id: 'a', size: 4, spans: [{ from: 0, to: 10 }], alignment: 1, fixedOffset: 6 },
      { id: 'b', size: 6, spans: [{ from: 0, to: 5 }], alignment: 2 },
      { id: 'c', size: 5, spans: [{ from: 5, to: 10 }], alignment: 2 },
    ];
    const plan = planOffsets(buffers, { budgetMs: 10 });
    expect([...plan.offsets]).toEqual([6, 0, 0]);
    expect(plan.footprint).toBe(10);
  });

  test('refuses fixed offsets that contradict each other', () => {
    const buffers: Buffer[] = [0, 2].map((fixedOffset, index) => ({
      id: `b${index}`,
      size: 4,
      spans: [{ from: 0, to: 5 }],
      alignment: 1,
      fixedOffset,
    }));
    expect(() => planOffsets(buffers)).toThrow(InputError);
  });

  test('uses the room of a buffer that is away', () => {
    const buffers: Buffer[] = [
      { id: 'swapped', size: 10, spans: withoutGaps([{ from: 0, to: 30 }], [{ from: 10, to: 20 }]), alignment: 1 },
      { id: 'guest', size: 10, spans: [{ from: 10, to: 20 }], alignment: 1 },
    ];
    expect(planOffsets(buffers).footprint).toBe(10);
  });

  test('a lifetime across the end of the circle meets what begins it', () => {
    const across = spansOnCircle(8, 13, 10);
    expect(across).toEqual([
      { from: 0, to: 3 },
      { from: 8, to: 10 },
    ]);
    const buffers: Buffer[] = [
      { id: 'across', size: 3, spans: across, alignment: 1 },
      { id: 'early', size: 4, spans: [{ from: 2, to: 4 }], alignment: 1 },
    ];
    expect(planOffsets(buffers).footprint).toBe(7);
  });
});

describe('verifier', () => {
  const buffers: Buffer[] = [
    { id: 'a', size: 4, spans: [{ from: 0, to: 3 }], alignment: 2 },
    { id: 'b', size: 4, spans: [{ from: 2, to: 9 }], alignment: 1 },
  ];
  const check = (offsets: number[], footprint = 8) =>
    verifyOffsets(buffers, { offsets: Float64Array.from(offsets), footprint }).map((fault) => fault.message);

  test('accepts what is right', () => expect(check([0, 4])).toEqual([]));
  test('sees shared bytes', () => expect(check([0, 3])[0]).toMatch(/share bytes/));
  test('sees a range above the footprint', () => expect(check([0, 5])[0]).toMatch(/above the footprint/));
  test('sees a wrong alignment', () => expect(check([1, 5], 20)[0]).toMatch(/not aligned/));
  test('sees fractions and negative numbers', () => expect(check([-2, 4.5], 20)).toHaveLength(2));
  test('sees missing offsets', () => expect(check([0])[0]).toMatch(/1 offsets for 2 buffers/));

  test('finds any overlap that comparing all pairs finds', () => {
    fc.assert(
      fc.property(oddBuffers, fc.array(fc.nat(60), { minLength: 40, maxLength: 40 }), (some, numbers) => {
        const offsets = Float64Array.from(some, (buffer, index) => Math.floor(numbers[index]! / buffer.alignment) * buffer.alignment);
        const overlap = some.some((a, i) =>
          some.some((b, j) => i < j && meet(a, b) && offsets[i]! < offsets[j]! + b.size && offsets[j]! < offsets[i]! + a.size),
        );
        expect(verifyOffsets(some, { offsets, footprint: 1000 }).length > 0).toBe(overlap);
      }),
    );
  });

  test('sees a buffer that is not at its fixed offset', () => {
    const fixed = [{ id: 'a', size: 4, spans: [{ from: 0, to: 1 }], alignment: 1, fixedOffset: 8 }];
    expect(verifyOffsets(fixed, { offsets: Float64Array.of(8), footprint: 12 })).toEqual([]);
    expect(verifyOffsets(fixed, { offsets: Float64Array.of(4), footprint: 12 })).toEqual([
      { message: 'buffer a must be at 8 but is at 4' },
    ]);
  });
});

describe('buffer CSV', () => {
  test('reads columns in any order, gaps, alignment and inclusive ends', () => {
    const [buffer] = readBufferCsv('size,end,start,buffer,alignment,gaps\n8,9,0,x,4,2-4 6-7\n');
    expect(buffer).toEqual({
      id: 'x',
      size: 8,
      alignment: 4,
      fixedOffset: undefined,
      spans: [
        { from: 0, to: 2 },
        { from: 4, to: 6 },
        { from: 7, to: 10 },
      ],
    });
  });

  test.each([
    ['', /no column/],
    ['id,lower,upper\n', /'size'/],
    ['id,lower,upper,size\n', /no buffers/],
    ['id,lower,upper,size\na,0,3,x\n', /not a valid size/],
    ['id,lower,upper,size\na,5,3,1\n', /end must be after the start/],
    ['id,lower,upper,size\na,0,3,-1\n', /above 0/],
    ['id,lower,upper,size\na,0,3,1e300\n', /whole number/],
    ['id,lower,upper,size,gaps\na,0,3,1,1..2\n', /is not a gap/],
  ])('refuses %j', (text, message) => {
    expect(() => readBufferCsv(text)).toThrow(message);
    expect(() => readBufferCsv(text)).toThrow(InputError);
  });
});
