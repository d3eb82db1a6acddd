// A made-up training program with its source lines, recorded as Weir or PyTorch would: for tests that compare runs.
// Each layer is a list of lines; a test edits them as a programmer would, and says which line is new or forgets memory.
import { PhaseMark } from '../../src/abi/events.ts';
import { EventStore } from '../../src/trace/event-store.ts';
import { Symbols } from '../../src/trace/symbols.ts';
import { type Annotation, EventKind, type Trace } from '../../src/trace/trace.ts';
import { oneStreamTrace } from './one-stream.ts';

export const MIB = 2 ** 20;

/** A frame, innermost first in lists. */
export type Row = readonly [file: string, line: number, name: string];

/** A line of `forward` that allocates: what it calls in PyTorch, and the bytes of its result. */
export interface ForwardLine {
  readonly line: number;
  readonly calls: 'linear' | 'relu' | 'softmax' | 'none';
  readonly size: number;
}

export interface TrainingOptions {
  readonly steps?: number;
  readonly layers?: number;
  readonly forward?: readonly ForwardLine[];
  /** Folders of the project and of the environment. */
  readonly project?: string;
  readonly packages?: string;
  /** Bytes that a step forgets, at `train.py:33 log`. */
  readonly leak?: number | ((step: number) => number);
  /** Bytes at `train.py:36 cache` that take the place of those of the step before. */
  readonly cache?: (step: number) => number;
  /** How steps can be told apart. weir: the recorder marks them. counted: the program does, with numbers. */
  readonly marks?: 'weir' | 'counted' | 'annotations' | 'none';
  readonly stacks?: boolean;
  /** Bytes of the batch, by step: other lengths repeat nothing. */
  readonly batch?: (step: number) => number;
  /** Functions are recorded with their classes, as Weir does. */
  readonly qualified?: boolean;
  readonly device?: number;
  readonly symbols?: Symbols;
}

export const FORWARD: readonly ForwardLine[] = [
  { line: 10, calls: 'linear', size: 4 * MIB },
  { line: 11, calls: 'softmax', size: 8 * MIB },
  { line: 12, calls: 'linear', size: 6 * MIB },
];

const CALLED: Record<ForwardLine['calls'], readonly Row[]> = {
  linear: [
    ['torch/nn/modules/linear.py', 125, 'forward'],
    ['torch/nn/modules/module.py', 1770, '_call_impl'],
  ],
  relu: [['torch/nn/functional.py', 1700, 'relu']],
  softmax: [['torch/nn/functional.py', 2100, 'softmax']],
  none: [],
};

interface Held {
  readonly address: number;
  readonly size: number;
}

export function train(options: TrainingOptions = {}): Trace {
  const { steps = 8, layers = 3, forward = FORWARD, project = '/home/me/proj', packages = '/env/lib/python3.12/site-packages' } = options;
  const {
    leak = 0,
    cache,
    marks = 'weir',
    stacks = true,
    batch = () => MIB,
    qualified = false,
    device = 0,
    symbols = new Symbols(),
  } = options;
  const store = new EventStore();
  const annotations: Annotation[] = [];
  let address = 0x7f00_0000_0000;
  let time = 1.7e15;
  const path = (file: string) => (file === '' ? '' : file.startsWith('torch/') ? `${packages}/${file}` : `${project}/${file}`);
  const stackOf = (rows: readonly Row[]) =>
    rows.reduceRight(
      (outer, [file, line, name]) =>
        symbols.stacks.push(
          outer,
          symbols.frames.intern(
            symbols.internString(qualified && name === 'forward' ? `Model.${name}` : name),
            symbols.internString(path(file)),
            line,
          ),
        ),
      -1,
    );
  const alloc = (size: number, rows: readonly Row[]): Held => {
    address += Math.ceil(size / 512) * 512;
    store.append(EventKind.Alloc, address, size, time++, 0, 0, stacks ? stackOf(rows) : -1, 0);
    return { address, size };
  };
  const free = ({ address: at, size }: Held) => {
    store.append(EventKind.FreeRequested, at, size, time++, 0, 0, -1, 0);
    store.append(EventKind.FreeCompleted, at, size, time++, 0, 0, -1, 0);
  };
  const mark = (text: string) => {
    const row = store.append(EventKind.Mark, 0, 0, time++, 0, 0, -1, 0);
    store.setOptional(row, 'detail', symbols.internString(text));
  };
  const main: readonly Row[] = [['train.py', 50, '<module>']];
  const parameters = Array.from({ length: layers }, () =>
    alloc(2 * MIB, [['model.py', 5, '__init__'], ['train.py', 20, 'build'], ...main]),
  );
  let cached: Held | undefined;
  for (let step = 0; step < steps; step++) {
    if (marks === 'weir') mark(PhaseMark.step);
    if (marks === 'counted') mark(`step ${step}`);
    const input = alloc(batch(step), [['train.py', 30, 'step'], ...main]);
    const saved: { held: Held; rows: readonly Row[] }[] = [];
    for (let layer = 0; layer < layers; layer++)
      for (const { line, calls, size } of forward) {
        const rows: readonly Row[] = [...CALLED[calls], ['model.py', line, 'forward'], ['train.py', 31, 'step'], ...main];
        saved.push({ held: alloc(size, rows), rows });
      }
    const forgotten = typeof leak === 'number' ? leak : leak(step);
    if (forgotten > 0) alloc(forgotten, [['train.py', 33, 'log'], ['train.py', 32, 'step'], ...main]);
    const gradients: Held[] = [];
    for (const { held, rows } of saved.reverse()) {
      const gradient = alloc(MIB / 2, [['', 0, 'backward of AddmmBackward0'], ...rows]);
      free(held);
      gradients.push(gradient);
    }
    if (marks === 'annotations') annotations.push({ name: 'Optimizer.step#AdamW.step', stage: 'START', device, timeUs: time++ });
    if (step === 0)
      for (let at = 0; at < 2 * parameters.length; at++)
        alloc(2 * MIB, [['torch/optim/adam.py', 180, '_init_group'], ['train.py', 35, 'step'], ...main]);
    for (const gradient of gradients) free(gradient);
    free(input);
    if (!cache) continue;
    const next = alloc(cache(step), [['train.py', 36, 'cache'], ...main]);
    if (cached) free(cached);
    cached = next;
  }
  return oneStreamTrace(store.view(), symbols, { device, annotations });
}
