// The flame graph: widths are shares, children lie under their parents, and nothing sticks out.
import { describe, expect, it } from 'vitest';
import { readRecording } from '../../src/trace/detect.ts';
import type { Trace } from '../../src/trace/trace.ts';
import { type FlameGraph, flameGraph, insideOf, nodeOf, RectKind, refOf } from '../../src/view/flame.ts';
import { framesWith, stacksWith } from '../../src/view/search.ts';
import { readSample } from '../support/samples.ts';
import { scripted } from '../support/scripted.ts';

const [trace] = readRecording(readSample('gpt2xl-oom.pickle.gz')).traces as [Trace];
const leaves = Array.from({ length: 2000 }, (_, index) => ({ node: nodeOf(trace, index), bytes: trace.allocations.requested[index]! }));

describe('the flame graph', () => {
  const flame = flameGraph(trace, leaves);

  it('is as wide as all bytes together', () => {
    expect(flame.total).toBe(leaves.reduce((sum, leaf) => sum + leaf.bytes, 0));
    expect(flame.name[0]).toBe('all of it');
    const top = indices(flame).filter((index) => flame.row[index] === 1);
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
    const node = flame.node.find((candidate, index) => candidate >= 0 && flame.row[index] === 4)!;
    const zoomed = flameGraph(trace, leaves, { under: { node } });
    const inside = insideOf(trace, { node });
    expect(zoomed.total).toBe(leaves.filter((leaf) => inside(leaf.node)).reduce((sum, leaf) => sum + leaf.bytes, 0));
    // What leads there stays above it, as a way back.
    expect([...zoomed.row.subarray(0, 5)]).toEqual([0, 1, 2, 3, 4]);
    expect([...zoomed.width.subarray(0, 5)]).toEqual([1, 1, 1, 1, 1]);
    expect(zoomed.node[4]).toBe(node);
    expect(zoomed.bytes[0]).toBe(flame.total);
  });

  it('inverted, begins with the frames that asked, and has the same bytes', () => {
    const inverted = flameGraph(trace, leaves, { isInverted: true });
    expect(inverted.total).toBe(flame.total);
    const { stacks } = trace.symbols;
    for (const index of indices(inverted).filter((at) => inverted.node[at]! >= 0)) {
      const ref = refOf(inverted, index);
      const inside = insideOf(trace, ref);
      expect(inverted.bytes[index]).toBe(leaves.filter((leaf) => inside(leaf.node)).reduce((sum, leaf) => sum + leaf.bytes, 0));
      let node = ref.node;
      for (let step = 0; step < ref.depth!; step++) node = stacks.parent(node);
      expect(inverted.name[index]).toBe(trace.symbols.strings[trace.symbols.frames.name(stacks.frame(node))]);
    }
    const wide = indices(inverted).find((index) => inverted.row[index] === 3)!;
    const zoomed = flameGraph(trace, leaves, { isInverted: true, under: refOf(inverted, wide) });
    expect(zoomed.total).toBe(inverted.bytes[wide]);
    expect(refOf(zoomed, 3)).toEqual(refOf(inverted, wide));
  });

  it('says which share has a frame that is searched for', () => {
    const matches = framesWith(trace, 'modeling_gpt2');
    const inside = stacksWith(trace, 'modeling_gpt2');
    const wanted = leaves.filter(({ node }) => node >= 0 && inside[node] === 1).reduce((sum, { bytes }) => sum + bytes, 0);
    expect(wanted).toBeGreaterThan(0);
    for (const isInverted of [false, true]) {
      const found = flameGraph(trace, leaves, { matches, isInverted });
      expect(found.matched).toBe(wanted);
      for (const index of indices(found)) expect(found.isMatch[index] === 1).toBe(found.place[index]!.includes('modeling_gpt2'));
    }
  });

  it('tells the code of the user from libraries', () => {
    const kindOf = (place: string) => flame.kind[indices(flame).find((index) => flame.place[index]!.includes(place))!];
    expect(kindOf('train.py')).toBe(RectKind.User);
    expect(kindOf('torch/nn/modules/module.py')).toBe(RectKind.Library);
  });

  it('of a recursion has as many rows as anybody looks at, and no place that is not shown', () => {
    const recursion = scripted((script) => {
      let stack = -1;
      for (let depth = 0; depth < 20_000; depth++) {
        stack = script.push(stack, ['/p/tree.py', depth, 'grow']);
        if (depth % 40 === 39) script.allocAt(stack, 512);
      }
    });
    const deep = Array.from({ length: 500 }, (_, index) => ({ node: nodeOf(recursion, index), bytes: 512 }));
    for (const isInverted of [false, true]) {
      const graph = flameGraph(recursion, deep, { isInverted });
      expect(graph.total).toBe(500 * 512);
      expect(graph.depth).toBeLessThan(2100);
    }
    // From the deepest frame shown, the graph goes on.
    const shown = flameGraph(recursion, deep);
    const lowest = refOf(shown, shown.row.lastIndexOf(shown.depth - 1));
    expect(flameGraph(recursion, deep, { under: lowest }).depth).toBeGreaterThan(shown.depth);
  });

  it('is empty when nothing is live', () => {
    expect(flameGraph(trace, [])).toMatchObject({ total: 0, depth: 0 });
    expect(flameGraph(trace, leaves, { under: { node: trace.symbols.stacks.count + 7 } })).toMatchObject({ total: 0, depth: 0 });
  });
});

function indices(flame: FlameGraph): number[] {
  return [...flame.node.keys()];
}
