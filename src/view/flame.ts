// A flame graph of live bytes: stacks laid out as rectangles, widest first. Callers on top, or inverted: the frames that asked
// for the memory on top, and their callers below.
import { MOST_FRAMES, originsOf } from '../report/origin.ts';
import { isOlder, stackOf } from '../trace/stacks.ts';
import { NO_STACK } from '../trace/symbols.ts';
import type { Trace } from '../trace/trace.ts';
import { callersFirst, type FlameTree, innermostFirst } from './flame-trees.ts';

/** Rectangles that are no frames: the whole, and memory without a stack. */
export const ROOT_NODE = -1;
const NO_STACK_NODE = -2;
export const OLDER_NODE = -3;

/**
 * A rectangle. Without `depth`: the stack `node` and all that it calls. With `depth`, in an inverted graph: all stacks whose
 * innermost frames are the same as those of the stack `node`, that many and one more.
 */
export interface FlameRef {
  readonly node: number;
  readonly depth?: number | undefined;
}

export const RectKind = { Whole: 0, User: 1, Library: 2, Special: 3 } as const;

export interface FlameGraph {
  /** Bytes of what is zoomed in on, or of the whole graph. */
  readonly total: number;
  /** Bytes of stacks with a frame that was searched for. */
  readonly matched: number;
  readonly depth: number;
  readonly isInverted: boolean;
  /** Per rectangle, a parent before its children: its node, its row, and its start and width as shares of the whole. */
  readonly node: Int32Array;
  readonly row: Int32Array;
  readonly x: Float64Array;
  readonly width: Float64Array;
  readonly bytes: Float64Array;
  /** One of `RectKind`. */
  readonly kind: Uint8Array;
  /** 1: the frame was searched for. */
  readonly isMatch: Uint8Array;
  readonly name: readonly string[];
  readonly place: readonly string[];
}

export interface FlameLeaf {
  /** A stack, or one of the special nodes. */
  readonly node: number;
  readonly bytes: number;
}

export interface FlameOptions {
  /** Zoom: this rectangle is as wide as the graph. Its parents stay above it, as a way back. */
  readonly under?: FlameRef | undefined;
  readonly isInverted?: boolean | undefined;
  /** By frame: 1 if it was searched for. */
  readonly matches?: Uint8Array | undefined;
}

/** Rectangles narrower than this share of the whole are left out. */
const NARROWEST = 1 / 2000;

const NAMES: Readonly<Record<number, string>> = {
  [ROOT_NODE]: 'all of it',
  [NO_STACK_NODE]: '(no stack recorded)',
  [OLDER_NODE]: '(allocated before the recording began)',
};

interface Placed {
  readonly at: number;
  readonly bytes: number;
  readonly row: number;
  readonly x: number;
  /** Above the rectangle that is zoomed in on. */
  readonly isAbove?: boolean;
}

export function flameGraph(trace: Trace, leaves: Iterable<FlameLeaf>, options: FlameOptions = {}): FlameGraph {
  const { under = { node: ROOT_NODE }, isInverted = false, matches } = options;
  const list = [...leaves];
  const tree = isInverted ? innermostFirst(trace, list) : callersFirst(trace, list);
  const special = new Map<number, number>();
  for (const { node, bytes } of list) if (node < 0) special.set(node, (special.get(node) ?? 0) + bytes);
  const bytesAt = (at: number) => (at >= 0 ? tree.bytes(at) : (special.get(at) ?? 0));
  const whole = list.reduce((sum, leaf) => sum + leaf.bytes, 0);
  const focus = focusOf(tree, under, special);
  const total = focus === ROOT_NODE ? whole : focus === undefined ? 0 : bytesAt(focus);
  const rects = new Rectangles(trace, tree, isInverted, total, matches);
  if (focus === undefined || total === 0) return rects.graph(0);
  const path = focus === ROOT_NODE ? [] : focus < 0 ? [ROOT_NODE] : [ROOT_NODE, ...tree.above(focus)];
  for (const [row, at] of path.entries()) rects.add({ at, bytes: at === ROOT_NODE ? whole : bytesAt(at), row, x: 0, isAbove: true });
  const waiting: Placed[] = [{ at: focus, bytes: total, row: path.length, x: 0 }];
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    rects.add(next);
    const isDeepest = next.at < 0 || next.row - path.length >= MOST_FRAMES;
    const inner = next.at === ROOT_NODE ? [...tree.roots, ...special.keys()] : isDeepest ? [] : tree.children(next.at);
    let x = next.x;
    for (const { at, bytes } of inner.map((each) => ({ at: each, bytes: bytesAt(each) })).sort((a, b) => b.bytes - a.bytes)) {
      if (bytes / total >= NARROWEST) waiting.push({ at, bytes, row: next.row + 1, x });
      x += bytes / total;
    }
  }
  return rects.graph(matches ? matchedBytes(trace, list, matches, insideOf(trace, under)) : 0);
}

/** The place in the tree that is zoomed in on; undefined: nothing of it is live. */
function focusOf(tree: FlameTree, under: FlameRef, special: ReadonlyMap<number, number>): number | undefined {
  if (under.node === ROOT_NODE) return ROOT_NODE;
  if (under.node < 0) return special.has(under.node) ? under.node : undefined;
  return tree.find(under);
}

function matchedBytes(trace: Trace, leaves: readonly FlameLeaf[], matches: Uint8Array, inside: (node: number) => boolean): number {
  const { stacks } = trace.symbols;
  const has = new Uint8Array(stacks.count);
  for (let stack = 0; stack < stacks.count; stack++) {
    const parent = stacks.parent(stack);
    has[stack] = matches[stacks.frame(stack)] === 1 || (parent >= 0 && has[parent] === 1) ? 1 : 0;
  }
  return leaves.reduce((sum, { node, bytes }) => sum + (node >= 0 && has[node] === 1 && inside(node) ? bytes : 0), 0);
}

class Rectangles {
  private readonly trace: Trace;
  private readonly tree: FlameTree;
  private readonly isInverted: boolean;
  private readonly total: number;
  private readonly matches: Uint8Array | undefined;
  private readonly node: number[] = [];
  private readonly row: number[] = [];
  private readonly x: number[] = [];
  private readonly width: number[] = [];
  private readonly bytes: number[] = [];
  private readonly kind: number[] = [];
  private readonly isMatch: number[] = [];
  private readonly name: string[] = [];
  private readonly place: string[] = [];

  constructor(trace: Trace, tree: FlameTree, isInverted: boolean, total: number, matches: Uint8Array | undefined) {
    this.trace = trace;
    this.tree = tree;
    this.isInverted = isInverted;
    this.total = total;
    this.matches = matches;
  }

  add({ at, bytes, row, x, isAbove }: Placed): void {
    const { frames, strings } = this.trace.symbols;
    this.row.push(row);
    this.x.push(x);
    this.width.push(isAbove ? 1 : bytes / this.total);
    this.bytes.push(bytes);
    if (at < 0) {
      this.node.push(at);
      this.kind.push(at === ROOT_NODE ? RectKind.Whole : RectKind.Special);
      this.isMatch.push(0);
      this.name.push(NAMES[at]!);
      this.place.push('');
      return;
    }
    const frame = this.tree.frame(at);
    const filename = strings[frames.filename(frame)] ?? '';
    this.node.push(this.tree.node(at));
    this.kind.push(originsOf(this.trace).isUser(frame) ? RectKind.User : RectKind.Library);
    this.isMatch.push(this.matches?.[frame] ?? 0);
    this.name.push(strings[frames.name(frame)] || filename || '?');
    this.place.push(filename === '' ? '' : `${filename}:${frames.line(frame)}`);
  }

  graph(matched: number): FlameGraph {
    return {
      total: this.total,
      matched,
      depth: this.row.reduce((most, row) => Math.max(most, row + 1), 0),
      isInverted: this.isInverted,
      node: Int32Array.from(this.node),
      row: Int32Array.from(this.row),
      x: Float64Array.from(this.x),
      width: Float64Array.from(this.width),
      bytes: Float64Array.from(this.bytes),
      kind: Uint8Array.from(this.kind),
      isMatch: Uint8Array.from(this.isMatch),
      name: this.name,
      place: this.place,
    };
  }
}

/** Names a rectangle, to zoom in on it or to select its memory. */
export function refOf(flame: FlameGraph, index: number): FlameRef {
  const node = flame.node[index]!;
  return flame.isInverted && node >= 0 ? { node, depth: flame.row[index]! - 1 } : { node };
}

/** Tells whether the node of an allocation (`nodeOf`) is in a rectangle. */
export function insideOf(trace: Trace, { node: under, depth }: FlameRef): (node: number) => boolean {
  if (under === ROOT_NODE) return () => true;
  if (under < 0) return (node) => node === under;
  const { stacks } = trace.symbols;
  if (depth !== undefined) {
    const wanted = innermostFrames(trace, under, depth);
    return (node) => {
      let at = node;
      for (const frame of wanted) {
        if (at < 0 || stacks.frame(at) !== frame) return false;
        at = stacks.parent(at);
      }
      return true;
    };
  }
  const inside = new Uint8Array(stacks.count);
  for (let node = under; node < stacks.count; node++) {
    const parent = stacks.parent(node);
    inside[node] = node === under || (parent >= 0 && inside[parent] === 1) ? 1 : 0;
  }
  return (node) => node >= 0 && inside[node] === 1;
}

function innermostFrames(trace: Trace, node: number, depth: number): number[] {
  const { stacks } = trace.symbols;
  const frames: number[] = [];
  for (let at = node; at >= 0 && frames.length <= depth && at < stacks.count; at = stacks.parent(at)) frames.push(stacks.frame(at));
  return frames;
}

/** The node of an allocation: its stack, or why it has none. */
export function nodeOf(trace: Trace, allocation: number): number {
  if (isOlder(trace, allocation)) return OLDER_NODE;
  const stack = stackOf(trace, allocation);
  return stack === NO_STACK ? NO_STACK_NODE : stack;
}
