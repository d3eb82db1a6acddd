// Random instances and a brute-force planner, for tests of the plan layer.
import fc from 'fast-check';
import { type Buffer, normalizeSpans, spansOnCircle } from '../../src/plan/offsets/buffers.ts';

/** Few buffers with small numbers, so that brute force ends and ties abound. */
export const smallBuffers: fc.Arbitrary<Buffer[]> = fc
  .array(fc.record({ from: fc.nat(8), length: fc.integer({ min: 1, max: 5 }), size: fc.integer({ min: 1, max: 6 }) }), {
    minLength: 1,
    maxLength: 6,
  })
  .map((items) =>
    items.map(({ from, length, size }, index) => ({ id: `b${index}`, size, spans: [{ from, to: from + length }], alignment: 1 })),
  );

/** Buffers with gaps, alignments and lifetimes around a circle of ten. */
export const oddBuffers: fc.Arbitrary<Buffer[]> = fc
  .array(
    fc.record({
      parts: fc.array(fc.record({ from: fc.nat(9), length: fc.integer({ min: 1, max: 4 }) }), { minLength: 1, maxLength: 3 }),
      size: fc.integer({ min: 1, max: 40 }),
      alignment: fc.constantFrom(1, 1, 2, 8),
    }),
    { minLength: 1, maxLength: 40 },
  )
  .map((items) =>
    items.map(({ parts, size, alignment }, index) => ({
      id: `b${index}`,
      size,
      alignment,
      spans: normalizeSpans(parts.flatMap(({ from, length }) => spansOnCircle(from, from + length, 10))),
    })),
  );

export function meet(a: Buffer, b: Buffer): boolean {
  return a.spans.some((x) => b.spans.some((y) => x.from < y.to && y.from < x.to));
}

/** The smallest footprint, by trying every order: some order gives an optimal layout by first fit. */
export function bruteForce(buffers: readonly Buffer[]): number {
  let best = Number.POSITIVE_INFINITY;
  const offsets = new Map<Buffer, number>();
  const place = (left: readonly Buffer[], footprint: number) => {
    if (footprint >= best) return;
    if (left.length === 0) {
      best = footprint;
      return;
    }
    for (const buffer of left) {
      const taken = [...offsets].filter(([other]) => meet(buffer, other)).sort((a, b) => a[1] - b[1]);
      let offset = 0;
      for (const [other, at] of taken) {
        if (at - offset >= buffer.size) break;
        offset = Math.max(offset, Math.ceil((at + other.size) / buffer.alignment) * buffer.alignment);
      }
      offsets.set(buffer, offset);
      place(
        left.filter((other) => other !== buffer),
        Math.max(footprint, offset + buffer.size),
      );
      offsets.delete(buffer);
    }
  };
  place(buffers, 0);
  return best;
}
