// Forward frames of memory that a backward pass allocated: lines of Python's traceback, which become a call stack.
// PyTorch 2.11 and later write them as texts beside the frames, if anomaly detection is on.
import { NO_STACK, type Symbols } from '../symbols.ts';

/** A line of `traceback.format_stack`. */
const TRACEBACK_LINE = /^\s*File "([^"\n]{1,4096})", line (\d{1,9}), in ([^\n]{1,1024})/;
/** Names longer than this are no names. */
const MAX_NAME = 200;
/** A stack of more frames keeps no forward frames: each pair of stacks is stored as one, so a small file could ask for any number. */
const MAX_DEPTH = 256;
/** Stands between both stacks. */
export const FORWARD_MARK = '(forward pass)';

export class ForwardFrames {
  private readonly symbols: Symbols;
  /** Frames by the id of their text. */
  private readonly frames = new Map<number, number>();
  private mark = -1;
  /** The pair joined last: most events of a kind repeat it. */
  private last = { stack: NO_STACK, forward: NO_STACK, joined: NO_STACK };

  constructor(symbols: Symbols) {
    this.symbols = symbols;
  }

  /** The stack `outer` with one more inner frame, of the text with this id. */
  push(outer: number, id: number, textOf: (id: number) => string): number {
    let frame = this.frames.get(id);
    if (frame === undefined) {
      frame = this.frameOf(textOf(id));
      this.frames.set(id, frame);
    }
    return this.symbols.stacks.push(outer, frame);
  }

  /** One stack: the frames of `stack`, and behind them the mark and those of `forward`. */
  behind(stack: number, forward: number): number {
    const { last } = this;
    if (forward === NO_STACK) return stack;
    if (last.stack === stack && last.forward === forward) return last.joined;
    const joined = this.join(stack, forward);
    this.last = { stack, forward, joined };
    return joined;
  }

  private join(stack: number, forward: number): number {
    const { stacks, frames } = this.symbols;
    const own: number[] = [];
    for (let node = stack; node !== NO_STACK; node = stacks.parent(node)) {
      if (own.length === MAX_DEPTH) return stack;
      own.push(stacks.frame(node));
    }
    if (this.mark < 0) this.mark = frames.intern(this.symbols.internString(FORWARD_MARK), 0, 0);
    let joined = stacks.push(forward, this.mark);
    for (let at = own.length - 1; at >= 0; at--) joined = stacks.push(joined, own[at]!);
    return joined;
  }

  private frameOf(text: string): number {
    const { symbols } = this;
    const found = TRACEBACK_LINE.exec(text);
    if (!found) return symbols.frames.intern(symbols.internString(text.trim().slice(0, MAX_NAME)), 0, 0);
    const name = symbols.internString(found[3]!.trim().slice(0, MAX_NAME));
    return symbols.frames.intern(name, symbols.internString(found[1]!), Number(found[2]) | 0);
  }
}
