// Builds call stacks from lists of frames, innermost first. Snapshots repeat the outer frames a million times,
// so each list is compared with the one before, and only the frames that differ are looked up.
import { NO_STACK, type StackTable } from '../symbols.ts';

export class StackBuilder {
  private readonly stacks: StackTable;
  /** The stack built last, outermost frame first. */
  private frames = new Int32Array(256);
  private nodes = new Int32Array(256);
  private length = 0;

  constructor(stacks: StackTable) {
    this.stacks = stacks;
  }

  /** The stack of the frames at `from` to `to`, innermost first. */
  build(values: Float64Array, from: number, to: number): number {
    const length = to - from;
    if (length > this.frames.length) {
      this.frames = new Int32Array(length * 2);
      this.nodes = new Int32Array(length * 2);
      this.length = 0;
    }
    const { frames, nodes, stacks } = this;
    const known = Math.min(length, this.length);
    let depth = 0;
    let at = to - 1;
    while (depth < known && frames[depth] === values[at]) {
      depth++;
      at--;
    }
    let node = depth > 0 ? nodes[depth - 1]! : NO_STACK;
    for (; depth < length; depth++, at--) {
      const frame = values[at]!;
      node = stacks.push(node, frame);
      frames[depth] = frame;
      nodes[depth] = node;
    }
    this.length = length;
    return node;
  }
}
