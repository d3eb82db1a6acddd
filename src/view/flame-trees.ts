// The two trees behind flame graphs: stacks by their callers, as they are recorded, and inverted by their innermost frames.
import { NO_STACK } from '../trace/symbols.ts';
import type { Trace } from '../trace/trace.ts';

/** Numbers of a tree's own name its places. */
export interface FlameTree {
  readonly roots: readonly number[];
  children(at: number): readonly number[];
  bytes(at: number): number;
  frame(at: number): number;
  /** A stack that goes through this place. */
  node(at: number): number;
  /** From the outermost place on, without `at` itself. */
  above(at: number): readonly number[];
  find(ref: { readonly node: number; readonly depth?: number | undefined }): number | undefined;
}

interface Leaf {
  readonly node: number;
  readonly bytes: number;
}

export function callersFirst(trace: Trace, leaves: readonly Leaf[]): FlameTree {
  const { stacks } = trace.symbols;
  const bytes = new Float64Array(stacks.count);
  for (const leaf of leaves) if (leaf.node >= 0) bytes[leaf.node]! += leaf.bytes;
  const children = new Map<number, number[]>();
  // Parents have smaller numbers than their children, so one pass from the end sums up the tree.
  for (let node = stacks.count - 1; node >= 0; node--) {
    if (bytes[node] === 0) continue;
    const parent = stacks.parent(node);
    if (parent >= 0) bytes[parent]! += bytes[node]!;
    const siblings = children.get(parent);
    if (siblings) siblings.push(node);
    else children.set(parent, [node]);
  }
  return {
    roots: children.get(NO_STACK) ?? [],
    children: (at) => children.get(at) ?? [],
    bytes: (at) => bytes[at]!,
    frame: (at) => stacks.frame(at),
    node: (at) => at,
    above: (at) => {
      const path: number[] = [];
      for (let parent = stacks.parent(at); parent >= 0; parent = stacks.parent(parent)) path.unshift(parent);
      return path;
    },
    find: ({ node }) => (node < stacks.count && bytes[node]! > 0 ? node : undefined),
  };
}

export function innermostFirst(trace: Trace, leaves: readonly Leaf[]): FlameTree {
  const { stacks, frames } = trace.symbols;
  const parents: number[] = [];
  const frameAt: number[] = [];
  const nodeAt: number[] = [];
  const bytes: number[] = [];
  const children: number[][] = [];
  const roots: number[] = [];
  const known = new Map<number, number>();
  const step = (parent: number, frame: number, node: number): number => {
    const key = (parent + 1) * frames.count + frame;
    let at = known.get(key);
    if (at === undefined) {
      at = parents.push(parent) - 1;
      known.set(key, at);
      frameAt.push(frame);
      nodeAt.push(node);
      bytes.push(0);
      children.push([]);
      (parent < 0 ? roots : children[parent]!).push(at);
    }
    return at;
  };
  for (const leaf of leaves) {
    let at = -1;
    for (let node = leaf.node; node >= 0; node = stacks.parent(node)) {
      at = step(at, stacks.frame(node), leaf.node);
      bytes[at]! += leaf.bytes;
    }
  }
  return {
    roots,
    children: (at) => children[at]!,
    bytes: (at) => bytes[at]!,
    frame: (at) => frameAt[at]!,
    node: (at) => nodeAt[at]!,
    above: (at) => {
      const path: number[] = [];
      for (let parent = parents[at]!; parent >= 0; parent = parents[parent]!) path.unshift(parent);
      return path;
    },
    find: ({ node, depth = 0 }) => {
      let at = -1;
      let stack = node;
      for (let row = 0; row <= depth && stack >= 0 && stack < stacks.count; row++) {
        const next = known.get((at + 1) * frames.count + stacks.frame(stack));
        if (next === undefined) return undefined;
        at = next;
        stack = stacks.parent(stack);
      }
      return at < 0 ? undefined : at;
    },
  };
}
