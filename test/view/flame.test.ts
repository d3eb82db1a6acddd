// The flame graph: widths are shares, children lie under their parents, and nothing sticks out.
import { describe, expect, it } from 'vitest';
import { readRecording } from '../../src/trace/detect.ts';
import type { Trace } from '../../src/trace/trace.ts';
import { type FlameGraph, flameGraph, isUnder, nodeOf } from '../../src/view/flame.ts';
import { readSample } from '../support/samples.ts';

const [trace] = readRecording(readSample('gpt2xl-oom.pickle.gz')).traces as [Trace];
const leaves = Array.from({ length: 2000 }, (_, index) => ({ node: nodeOf(trace, index), bytes: trace.allocations.requested[index]! }));

describe('the flame graph', () => {
  const flame = flameGraph(trace, leaves);

  it('is as wide as all bytes together', () => {
    expect(flame.total).toBe(leaves.reduce((sum, leaf) => sum + leaf.bytes, 0));
    const top = indices(flame).filter((index) => flame.row[index] === 0);
    expect(top.reduce((sum, index) => sum + flame.bytes[index]!, 0)).toBe(flame.total);
  });

  it('keeps children inside their parents', () => {
    for (const index of indices(flame)) {
      const parent = flame.node[index]! >= 0 ? trace.symbols.stacks.parent(flame.node[index]!) : -1;
      if (parent < 0) continue;
      const above = indices(flame).find((other) => flame.node[other] === parent)!;
      expect(flame.row[above]).toBe(flame.row[index]! - 1);
      expect(flame.x[index]!).toBeGreaterThanOrEqual(flame.x[above]! - 1e-9);
      expect(flame.x[index]! + flame.width[index]!).toBeLessThanOrEqual(flame.x[above]! + flame.width[above]! + 1e-9);
    }
  });

  it('zooms to one node', () => {
    const node = flame.node.find((candidate, index) => candidate >= 0 && flame.row[index] === 3)!;
    const zoomed = flameGraph(trace, leaves, node);
    const inside = isUnder(trace, node);
    expect(zoomed.total).toBe(leaves.filter((leaf) => inside(leaf.node)).reduce((sum, leaf) => sum + leaf.bytes, 0));
    expect(zoomed.width[0]).toBe(1);
  });

  it('is empty when nothing is live', () => {
    expect(flameGraph(trace, [])).toMatchObject({ total: 0, depth: 0 });
  });
});

function indices(flame: FlameGraph): number[] {
  return [...flame.node.keys()];
}
