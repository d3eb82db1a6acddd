// The two trees behind flame graphs: stacks by their callers, as they are recorded, and inverted by their innermost frames.
import { MOST_FRAMES } from '../report/origin.ts';
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
      for (let parent = stacks.parent(at); parent >= 0; parent = stacks.parent(parent)) path.push(parent);
      return path.reverse();
    },
    find: ({ node }) => (node < stacks.count && bytes[node]! > 0 ? node : undefined),
  };
}

/** A stack that goes through a place, at its frame there. */
interface Through {
  readonly stack: number;
  readonly node: number;
  readonly bytes: number;
}

/**
 * Places are made when they are asked for. All of them together are as many as there are frames in all stacks, each counted by itself:
 * a recursion has too many. Only MOST_FRAMES rows are made.
 */
export function innermostFirst(trace: Trace, leaves: readonly Leaf[]): FlameTree {
  const { stacks } = trace.symbols;
  const parents: number[] = [];
  const rows: number[] = [];
  const inside: (readonly Through[])[] = [];
  const bytes: number[] = [];
  const made = new Map<number, readonly number[]>();
  const place = (parent: number, through: readonly Through[]): number => {
    rows.push(parent < 0 ? 0 : rows[parent]! + 1);
    inside.push(through);
    bytes.push(through.reduce((sum, each) => sum + each.bytes, 0));
    return parents.push(parent) - 1;
  };
  const placesOf = (parent: number, all: readonly Through[]): number[] => {
    const byFrame = new Map<number, Through[]>();
    for (const each of all) {
      if (each.node < 0) continue;
      const frame = stacks.frame(each.node);
      const same = byFrame.get(frame);
      if (same) same.push(each);
      else byFrame.set(frame, [each]);
    }
    return [...byFrame.values()].map((through) => place(parent, through));
  };
  const roots = placesOf(-1, merged(leaves));
  const children = (at: number): readonly number[] => {
    let found = made.get(at);
    if (!found) {
      const outer = inside[at]!.map((each) => ({ ...each, node: stacks.parent(each.node) }));
      found = rows[at]! + 1 < MOST_FRAMES ? placesOf(at, outer) : [];
      made.set(at, found);
    }
    return found;
  };
  const frame = (at: number) => stacks.frame(inside[at]![0]!.node);
  return {
    roots,
    children,
    bytes: (at) => bytes[at]!,
    frame,
    node: (at) => inside[at]![0]!.stack,
    above: (at) => {
      const path: number[] = [];
      for (let parent = parents[at]!; parent >= 0; parent = parents[parent]!) path.push(parent);
      return path.reverse();
    },
    find: ({ node, depth = 0 }) => {
      let at: number | undefined;
      let stack = node;
      for (let row = 0; row <= depth && stack >= 0 && stack < stacks.count; row++) {
        const wanted = stacks.frame(stack);
        at = (at === undefined ? roots : children(at)).find((each) => frame(each) === wanted);
        if (at === undefined) return undefined;
        stack = stacks.parent(stack);
      }
      return at;
    },
  };
}

/** One for each stack. */
function merged(leaves: readonly Leaf[]): Through[] {
  const bytes = new Map<number, number>();
  for (const leaf of leaves) if (leaf.node >= 0) bytes.set(leaf.node, (bytes.get(leaf.node) ?? 0) + leaf.bytes);
  return [...bytes].map(([stack, each]) => ({ stack, node: stack, bytes: each }));
}
