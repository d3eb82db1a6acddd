// A program with known size functions, run at any value: weights, layers forward and backward, an optimizer.

import { CATEGORY_NAMES, type Category, PhaseMark } from '../../src/abi/events.ts';
import { assembleTrace } from '../../src/trace/assemble.ts';
import { EventStore } from '../../src/trace/event-store.ts';
import { Symbols } from '../../src/trace/symbols.ts';
import { EventKind, type Segment, type Trace } from '../../src/trace/trace.ts';

/** Sizes of one layer at given values. */
export interface Layer {
  readonly weight: number;
  /** Saved until the backward pass. */
  saved(...values: number[]): number;
  /** Freed at once. */
  workspace(...values: number[]): number;
}

export interface Program {
  readonly layers: readonly Layer[];
  readonly steps: number;
  readonly hasStacks: boolean;
  readonly hasMarks: boolean;
  /** Extra temporary blocks of a layer at given values: another number of chunks. */
  chunks?(...values: number[]): number;
  /** A block of each step at given values, kept until the backward pass; 0: none. */
  extra?(...values: number[]): number;
  /** Operations after the last mark. */
  readonly hasTail?: boolean;
  /** Blocks that the optimizer keeps from the first step on. */
  readonly hasState?: boolean;
  /** Optimizers are marked, and their state is told. */
  readonly tellsState?: boolean;
  /** Gradients are freed at the start of the next step, as by zero_grad() there. */
  readonly freesLate?: boolean;
}

export function runProgram(program: Program, ...values: number[]): Trace {
  const run = new RunRecorder(program.hasStacks);
  let late: number[] = [];
  const weights = program.layers.map(({ weight }, index) => run.alloc(weight, ['init', index]));
  for (let step = 0; step < program.steps + (program.hasTail ? 1 : 0); step++) {
    for (const gradient of late) run.free(gradient);
    const input = run.alloc(
      values.reduce((product, value) => product * value, 8),
      ['input', 0],
    );
    const saved = program.layers.map((layer, index) => {
      const workspace = run.alloc(layer.workspace(...values), ['forward', index]);
      const kept = run.alloc(layer.saved(...values), ['forward', index]);
      run.free(workspace);
      for (let chunk = 0; chunk < (program.chunks?.(...values) ?? 0); chunk++)
        run.free(run.alloc(layer.saved(...values) + 512, ['chunk', index]));
      return kept;
    });
    if (step === program.steps) return run.finish();
    const extra = program.extra?.(...values) ?? 0;
    const kept = extra > 0 ? [run.alloc(extra, ['extra', 0])] : [];
    const gradients: number[] = [];
    for (let index = saved.length - 1; index >= 0; index--) {
      gradients.push(run.alloc(program.layers[index]!.weight, ['backward', index], 1 & index));
      run.free(saved[index]!);
    }
    run.free(input);
    for (const block of kept) run.free(block);
    if (program.tellsState) run.mark(PhaseMark.optimizer);
    if (step === 0 && program.hasState) {
      for (const layer of program.layers) {
        const state = run.alloc(2 * layer.weight, ['state', 0]);
        if (program.tellsState) run.tell(state, 'optimizerState');
      }
    }
    if (program.freesLate) late = gradients;
    else for (const gradient of gradients) run.free(gradient);
    if (program.hasMarks) run.mark(PhaseMark.step);
  }
  // Like most programs, this one never frees its weights.
  void weights;
  return run.finish();
}

/** Writes the events of a run. Times, addresses and stacks are invented. */
export class RunRecorder {
  private readonly store = new EventStore();
  private readonly symbols = new Symbols();
  private readonly hasStacks: boolean;
  private readonly sizes: number[] = [];
  private readonly streams: number[] = [];
  private readonly kept: number[] = [];
  private timeUs = 1e6;

  constructor(hasStacks: boolean) {
    this.hasStacks = hasStacks;
  }

  /** A block that is older than the recording and stays. */
  keptOlder(size: number): void {
    this.kept.push(size);
  }

  /** A block that is older than the recording: only its free is recorded. */
  older(size: number): number {
    this.streams.push(0);
    return this.sizes.push(size) - 1;
  }

  alloc(size: number, [name, line, ...outer]: readonly [string, number, ...string[]], stream = 0): number {
    const id = this.sizes.push(size) - 1;
    this.streams.push(stream);
    this.store.append(EventKind.Alloc, address(id), size, this.timeUs++, stream, 0, this.stack(name, line, outer), 0);
    return id;
  }

  free(id: number): void {
    for (const kind of [EventKind.FreeRequested, EventKind.FreeCompleted] as const)
      this.store.append(kind, address(id), this.sizes[id]!, this.timeUs++, this.streams[id]!, 0, -1, 0);
  }

  mark(name: string): void {
    const row = this.store.append(EventKind.Mark, 0, 0, this.timeUs++, 0, 0, -1, 0);
    this.store.setOptional(row, 'detail', this.symbols.internString(name));
  }

  tell(id: number, category: Category): void {
    const row = this.store.append(EventKind.Category, address(id), 0, this.timeUs++, 0, 0, -1, 0);
    this.store.setOptional(row, 'detail', CATEGORY_NAMES.indexOf(category));
  }

  finish(): Trace {
    return assembleTrace({
      device: 0,
      events: this.store.view(),
      startSegments: this.kept.map(keptSegment),
      endSegments: undefined,
      streams: [0, 7],
      pools: [[0, 0]],
      symbols: this.symbols,
      settings: new Map(),
      limits: {},
      annotations: [],
      warnings: [],
    });
  }

  /** `outer` are the names of files around, the outermost last. */
  private stack(name: string, line: number, outer: readonly string[]): number {
    if (!this.hasStacks) return -1;
    const { symbols } = this;
    const frame = (text: string, file: string, at: number) =>
      symbols.frames.intern(symbols.internString(text), symbols.internString(file), at);
    let stack = symbols.stacks.push(-1, frame('<module>', '/home/user/train.py', 1));
    for (const file of outer.toReversed()) stack = symbols.stacks.push(stack, frame('call', file, 7));
    return symbols.stacks.push(stack, frame(name, '/home/user/train.py', line));
  }
}

function keptSegment(size: number, index: number): Segment {
  const at = 2 ** 36 + index * 2 ** 33;
  const block = { address: at, size, requested: size, state: 'live' as const, stack: -1 };
  return { address: at, size, stream: 0, pool: 0, small: false, expandable: false, stack: -1, blocks: [block] };
}

function address(id: number): number {
  return 2 ** 40 + id * 2 ** 33;
}

/** What a replay reads of a trace, without times and addresses. */
export function behaviour(trace: Trace): string[] {
  const { events, allocationOf } = trace;
  const lines: string[] = [];
  for (let event = 0; event < events.count; event++)
    lines.push(`${events.kind[event]} ${allocationOf[event]} ${events.size[event]} ${events.stream[event]} ${events.pool[event]}`);
  return lines;
}
