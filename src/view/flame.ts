// A flame graph of live bytes: the stacks' prefix tree laid out as rectangles, outermost frame on top, widest first.
import { isOlder, stackOf } from '../trace/stacks.ts';
import { NO_STACK } from '../trace/symbols.ts';
import type { Trace } from '../trace/trace.ts';

/** Stacks that are not in the tree. */
const ROOT_NODE = -1;
const NO_STACK_NODE = -2;
export const OLDER_NODE = -3;

export interface FlameGraph {
  /** Bytes of the whole graph. */
  readonly total: number;
  readonly depth: number;
  /** Per rectangle: its stack node, its row, and its start and width as shares of the whole. */
  readonly node: Int32Array;
  readonly row: Int32Array;
  readonly x: Float64Array;
  readonly width: Float64Array;
  readonly bytes: Float64Array;
  readonly name: readonly string[];
  readonly place: readonly string[];
}

export interface FlameLeaf {
  /** A stack, or one of the special nodes. */
  readonly node: number;
  readonly bytes: number;
}

/** Rectangles narrower than this share of the whole are left out. */
const NARROWEST = 1 / 2000;

/** With `under`, that node is the whole graph. */
export function flameGraph(trace: Trace, leaves: Iterable<FlameLeaf>, under: number = ROOT_NODE): FlameGraph {
  const { stacks, frames, strings } = trace.symbols;
  const bytes = new Float64Array(stacks.count);
  const special = new Map<number, number>();
  for (const leaf of leaves) {
    if (leaf.node >= 0) bytes[leaf.node]! += leaf.bytes;
    else special.set(leaf.node, (special.get(leaf.node) ?? 0) + leaf.bytes);
  }
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
  const isSpecial = under === NO_STACK_NODE || under === OLDER_NODE;
  const roots = under >= 0 ? [under] : isSpecial ? [] : (children.get(NO_STACK) ?? []);
  const tops = [
    ...roots.map((node) => ({ node, bytes: bytes[node]! })),
    ...[...special].filter(([node]) => under === ROOT_NODE || node === under).map(([node, sum]) => ({ node, bytes: sum })),
  ];
  const total = tops.reduce((sum, top) => sum + top.bytes, 0);
  const out = { node: [] as number[], row: [] as number[], x: [] as number[], width: [] as number[], bytes: [] as number[] };
  const names: string[] = [];
  const places: string[] = [];
  let depth = 0;
  const waiting: { node: number; bytes: number; row: number; x: number }[] = [];
  const place = (siblings: { node: number; bytes: number }[], row: number, left: number) => {
    let x = left;
    for (const sibling of siblings.sort((a, b) => b.bytes - a.bytes)) {
      if (sibling.bytes / total >= NARROWEST) waiting.push({ ...sibling, row, x });
      x += sibling.bytes / total;
    }
  };
  if (total > 0) place(tops, 0, 0);
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    out.node.push(next.node);
    out.row.push(next.row);
    out.x.push(next.x);
    out.width.push(next.bytes / total);
    out.bytes.push(next.bytes);
    depth = Math.max(depth, next.row + 1);
    if (next.node >= 0) {
      const frame = stacks.frame(next.node);
      const filename = strings[frames.filename(frame)] ?? '';
      names.push(strings[frames.name(frame)] || filename || '?');
      places.push(filename === '' ? '' : `${filename}:${frames.line(frame)}`);
      const inner = (children.get(next.node) ?? []).map((node) => ({ node, bytes: bytes[node]! }));
      place(inner, next.row + 1, next.x);
    } else {
      names.push(next.node === OLDER_NODE ? '(allocated before the recording began)' : '(no stack recorded)');
      places.push('');
    }
  }
  return {
    total,
    depth,
    node: Int32Array.from(out.node),
    row: Int32Array.from(out.row),
    x: Float64Array.from(out.x),
    width: Float64Array.from(out.width),
    bytes: Float64Array.from(out.bytes),
    name: names,
    place: places,
  };
}

/** Tells whether a node (of an allocation: `nodeOf`) is `under` or below it. */
export function isUnder(trace: Trace, under: number): (node: number) => boolean {
  if (under < 0) return (node) => node === under;
  const { stacks } = trace.symbols;
  const inside = new Uint8Array(stacks.count);
  for (let node = under; node < stacks.count; node++) {
    const parent = stacks.parent(node);
    inside[node] = node === under || (parent >= 0 && inside[parent] === 1) ? 1 : 0;
  }
  return (node) => node >= 0 && inside[node] === 1;
}

/** The node of an allocation: its stack, or why it has none. */
export function nodeOf(trace: Trace, allocation: number): number {
  if (isOlder(trace, allocation)) return OLDER_NODE;
  const stack = stackOf(trace, allocation);
  return stack === NO_STACK ? NO_STACK_NODE : stack;
}
