// Categories of live memory: what the process told, what phases, stacks and lifetimes say, and that all parts add up.
import { readdirSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { CATEGORY_NAMES, type Category, PhaseMark } from '../../src/abi/events.ts';
import { MIB } from '../../src/base/bytes.ts';
import { categoriesAt, categoriesOf, categoryOfAllocation } from '../../src/report/categories.ts';
import { waysSentence } from '../../src/report/words/categories.ts';
import { assembleTrace, type TraceParts } from '../../src/trace/assemble.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { EventStore } from '../../src/trace/event-store.ts';
import { summarizeTrace } from '../../src/trace/summary.ts';
import { NO_STACK, Symbols } from '../../src/trace/symbols.ts';
import { EventKind, type Trace } from '../../src/trace/trace.ts';
import { ROOT } from '../support/command.ts';
import { scripted } from '../support/scripted.ts';

const SAMPLES = ['samples/', 'samples/exact/'].flatMap((folder) =>
  readdirSync(new URL(folder, ROOT), { withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => `${folder}${entry.name}`),
);

function tracesOf(path: string): readonly Trace[] {
  const bytes = readFileSync(new URL(path, ROOT));
  return readRecording(path.endsWith('.gz') ? gunzipSync(bytes) : bytes).traces;
}

/** A run that is written down event by event. */
class Run {
  readonly store = new EventStore();
  readonly symbols = new Symbols();
  private next = 2 ** 32;
  private now = 1000;
  private readonly sizes = new Map<number, number>();

  alloc(size: number, { stack = NO_STACK, pool = 0 } = {}): number {
    const address = this.next;
    this.next += 2 ** 28;
    this.sizes.set(address, size);
    this.add(EventKind.Alloc, address, size, stack, pool);
    return address;
  }

  free(...addresses: readonly number[]): void {
    for (const address of addresses) {
      this.add(EventKind.FreeRequested, address, this.sizes.get(address) ?? MIB);
      this.add(EventKind.FreeCompleted, address, this.sizes.get(address) ?? MIB);
    }
  }

  tell(address: number, category: Category): void {
    this.store.setOptional(this.add(EventKind.Category, address, 0), 'detail', CATEGORY_NAMES.indexOf(category));
  }

  mark(text: string): void {
    this.store.setOptional(this.add(EventKind.Mark, 0, 0), 'detail', this.symbols.internString(text));
  }

  stack(...frames: readonly (readonly [name: string, file: string])[]): number {
    let stack = NO_STACK;
    for (const [name, file] of frames) {
      const frame = this.symbols.frames.intern(this.symbols.internString(name), this.symbols.internString(file), 1);
      stack = this.symbols.stacks.push(stack, frame);
    }
    return stack;
  }

  trace(more: Partial<TraceParts> = {}): Trace {
    return assembleTrace({
      device: 0,
      events: this.store.view(),
      startSegments: undefined,
      endSegments: undefined,
      streams: [0],
      pools: [
        [0, 0],
        [1, 0],
      ],
      symbols: this.symbols,
      settings: new Map(),
      limits: {},
      annotations: [],
      warnings: [],
      ...more,
    });
  }

  time(): number {
    return this.now;
  }

  private add(kind: EventKind, address: number, size: number, stack = NO_STACK, pool = 0): number {
    this.now += 10;
    return this.store.append(kind, address, size, this.now, 0, pool, stack, 0);
  }
}

const LAYERS = 6;

/** Three steps of training, with everything a step has. Returns addresses by what they hold. */
function train(run: Run, marks: boolean, onOptimizer: (isStart: boolean) => void = () => {}) {
  const mark = (text: string) => marks && run.mark(text);
  const weights = Array.from({ length: LAYERS }, (_, layer) => run.alloc((8 + layer) * MIB));
  let states: number[] = [];
  const seen = { weights, states, activations: [] as number[], gradients: [] as number[], temporaries: [] as number[] };
  for (let step = 0; step < 3; step++) {
    const input = run.alloc(3 * MIB);
    const activations = weights.map(() => {
      const scratch = run.alloc(MIB);
      const kept = run.alloc(30 * MIB);
      run.free(scratch);
      seen.temporaries.push(scratch);
      return kept;
    });
    mark(PhaseMark.backward);
    const gradients = activations.toReversed().map((activation, index) => {
      const scratch = run.alloc(5 * MIB);
      const gradient = run.alloc((8 + LAYERS - 1 - index) * MIB);
      run.free(activation, scratch);
      seen.temporaries.push(scratch);
      return gradient;
    });
    mark(PhaseMark.forward);
    mark(PhaseMark.optimizer);
    onOptimizer(true);
    if (step === 0) states = weights.flatMap((_, layer) => [run.alloc((8 + layer) * MIB), run.alloc((8 + layer) * MIB)]);
    const scratch = run.alloc(7 * MIB);
    run.free(scratch);
    seen.temporaries.push(scratch);
    onOptimizer(false);
    mark(PhaseMark.step);
    run.free(...gradients, input);
    seen.activations.push(...activations);
    seen.gradients.push(...gradients);
  }
  return { ...seen, states };
}

function categories(trace: Trace, addresses: readonly number[]): Set<string> {
  const { allocations } = trace;
  const found = addresses.map((address) => {
    const { category, way } = categoryOfAllocation(trace, allocations.address.indexOf(address));
    return `${category} by ${way}`;
  });
  return new Set(found);
}

describe('phases', () => {
  test('that the process marked', () => {
    const run = new Run();
    const seen = train(run, true);
    const trace = run.trace();
    expect(categories(trace, seen.activations)).toEqual(new Set(['activation by phases']));
    expect(categories(trace, seen.gradients)).toEqual(new Set(['gradient by phases']));
    expect(categories(trace, seen.states)).toEqual(new Set(['optimizerState by phases']));
    expect(categories(trace, seen.temporaries)).toEqual(new Set(['temporary by phases']));
    expect(categories(trace, seen.weights)).toEqual(new Set(['parameter by lifetimes']));
  });

  test("that PyTorch's annotations and the shape of live memory show", () => {
    const run = new Run();
    const annotations: Trace['annotations'][number][] = [];
    const seen = train(run, false, (isStart) =>
      annotations.push({ name: 'Optimizer.step#Adam.step', stage: isStart ? 'START' : 'END', device: 0, timeUs: run.time() + 5 }),
    );
    const trace = run.trace({ annotations });
    // The turn from forward to backward is where live memory peaks: a guess, so the layer at the turn may be taken for another thing.
    const early = seen.activations.filter((_, index) => index % LAYERS < LAYERS - 1);
    const late = seen.gradients.filter((_, index) => index % LAYERS > 0);
    expect(categories(trace, early)).toEqual(new Set(['activation by lifetimes']));
    expect(categories(trace, late)).toEqual(new Set(['gradient by lifetimes']));
    expect(categories(trace, seen.states)).toEqual(new Set(['optimizerState by phases']));
    expect(categories(trace, seen.weights)).toEqual(new Set(['parameter by lifetimes']));
    const { bytes } = categoriesAt(trace, summarizeTrace(trace).peakLiveEvent);
    expect(bytes).toMatchObject({ parameter: 63 * MIB, optimizerState: 126 * MIB });
  });

  test('that nothing shows leave memory unknown', () => {
    const run = new Run();
    run.free(run.alloc(MIB), run.alloc(2 * MIB));
    const kept = run.alloc(4 * MIB);
    const trace = run.trace();
    expect(categories(trace, [kept])).toEqual(new Set(['unknown by none']));
  });
});

describe('what the process told', () => {
  test('counts before everything else, for the whole life of the memory', () => {
    const run = new Run();
    const seen = train(run, true);
    const first = run.alloc(MIB);
    run.tell(first, 'gradient');
    run.tell(first, 'kvCache');
    run.tell(seen.weights[0]!, 'buffer');
    const pooled = run.alloc(MIB, { pool: 1 });
    const parameter = run.alloc(MIB, { pool: 1 });
    run.tell(parameter, 'parameter');
    const trace = run.trace();
    expect(categories(trace, [first])).toEqual(new Set(['kvCache by told']));
    expect(categories(trace, [seen.weights[0]!])).toEqual(new Set(['buffer by told']));
    expect(categories(trace, [pooled])).toEqual(new Set(['graph by pools']));
    expect(categories(trace, [parameter])).toEqual(new Set(['parameter by told']));
    expect(categoriesAt(trace, 0).bytes.buffer).toBe(8 * MIB);
  });

  test('leaves no parameters to guess, and no gradients of a pass that has told them', () => {
    const run = new Run();
    const seen = train(run, true, () => {});
    const [weight, ...others] = seen.weights;
    run.tell(weight!, 'parameter');
    const backward = (tells: boolean) => {
      run.mark(PhaseMark.backward);
      const [told, other] = [run.alloc(8 * MIB), run.alloc(9 * MIB)];
      run.mark(PhaseMark.forward);
      if (tells) run.tell(told!, 'gradient');
      run.mark(PhaseMark.optimizer);
      run.mark(PhaseMark.step);
      run.free(told!, other!);
      return other!;
    };
    const [other, guessed] = [backward(true), backward(false)];
    const trace = run.trace();
    expect(categories(trace, others)).toEqual(new Set(['unknown by none']));
    expect(categories(trace, [other])).toEqual(new Set(['unknown by none']));
    expect(categories(trace, [guessed])).toEqual(new Set(['gradient by phases']));
  });

  test('is about the memory that is at the address at that time', () => {
    const run = new Run();
    const address = run.alloc(MIB);
    run.tell(address, 'parameter');
    run.free(address);
    run.store.append(EventKind.Alloc, address, 2 * MIB, 5000, 0, 0, NO_STACK, 0);
    const trace = run.trace();
    expect(categoryOfAllocation(trace, 0).category).toBe('parameter');
    expect(categoryOfAllocation(trace, 1).category).toBe('unknown');
  });

  test('is also about memory that is older than the recording', () => {
    const run = new Run();
    const old = 2 ** 40;
    const kept = 2 ** 41;
    run.tell(old, 'optimizerState');
    run.tell(kept, 'parameter');
    run.tell(2 ** 42, 'parameter');
    run.free(old);
    const block = { address: kept, size: MIB, requested: MIB, state: 'live' as const, stack: NO_STACK };
    const segment = { address: kept, size: MIB, stream: 0, pool: 0, small: false, expandable: false, stack: NO_STACK, blocks: [block] };
    const trace = run.trace({ startSegments: [segment] });
    expect(trace.allocations.count).toBe(2);
    expect(categoriesAt(trace, -1)).toMatchObject({
      live: 2 * MIB,
      bytes: { optimizerState: MIB, parameter: MIB },
      ways: { told: 2 * MIB },
    });
  });

  test('in a category of a later version is unknown', () => {
    const run = new Run();
    const address = run.alloc(MIB);
    run.tell(address, 'parameter');
    run.store.setOptional(run.store.count - 1, 'detail', 99);
    expect(categories(run.trace(), [address])).toEqual(new Set(['unknown by none']));
  });
});

describe('call stacks', () => {
  test('say which phase a request is from, and what it is for', () => {
    const run = new Run();
    const main = ['<module>', '/home/me/train.py'] as const;
    const linear = run.stack(main, ['__init__', '/venv/site-packages/torch/nn/modules/linear.py']);
    const forward = run.stack(main, ['_call_impl', '/venv/site-packages/torch/nn/modules/module.py'], ['forward', '/home/me/net.py']);
    const init = run.stack(main, ['step', '/venv/torch/optim/adam.py'], ['_init_group', '/venv/torch/optim/adam.py']);
    const step = run.stack(main, ['step', '/venv/torch/optim/adam.py']);
    const cache = run.stack(main, ['update', '/venv/site-packages/transformers/cache_utils.py']);
    const engine = run.stack(['execute_native_thread_routine', 'thread48.o'], ['torch::autograd::Engine::thread_init', 'engine.cpp']);
    const weight = run.alloc(8 * MIB, { stack: linear });
    const keys = run.alloc(2 * MIB, { stack: cache });
    const found: Record<string, number[]> = { activation: [], gradient: [], temporary: [], state: [] };
    for (let at = 0; at < 3; at++) {
      const kept = run.alloc(20 * MIB, { stack: forward });
      const gradient = run.alloc(8 * MIB, { stack: at === 1 ? NO_STACK : engine });
      const scratch = run.alloc(MIB, { stack: engine });
      run.free(kept, scratch);
      if (at === 0) found['state']!.push(run.alloc(8 * MIB, { stack: init }));
      run.free(run.alloc(4 * MIB, { stack: step }));
      run.free(gradient);
      found['activation']!.push(kept);
      found['gradient']!.push(gradient);
      found['temporary']!.push(scratch);
    }
    const trace = run.trace();
    expect(categories(trace, [weight])).toEqual(new Set(['parameter by stacks']));
    expect(categories(trace, [keys])).toEqual(new Set(['kvCache by stacks']));
    expect(categories(trace, found['activation']!)).toEqual(new Set(['activation by stacks']));
    expect(categories(trace, found['gradient']!)).toEqual(new Set(['gradient by stacks']));
    expect(categories(trace, found['temporary']!)).toEqual(new Set(['temporary by stacks']));
    expect(categories(trace, found['state']!)).toEqual(new Set(['optimizerState by stacks']));
  });
});

describe('call stacks of large requests alone', () => {
  test('say nothing of small ones', () => {
    const run = new Run();
    const main = ['<module>', '/home/me/train.py'] as const;
    const small: number[] = [];
    for (let step = 0; step < 8; step++) {
      const kept = run.alloc(20 * MIB, { stack: run.stack(main, ['Net.forward', '/home/me/net.py']) });
      const mask = run.alloc(MIB / 4);
      const gradient = run.alloc(8 * MIB, { stack: run.stack(['f', '/home/me/net.py'], ['backward of MulBackward0', '']) });
      run.free(kept, mask);
      run.free(run.alloc(4 * MIB, { stack: run.stack(main, ['Adam.step', '/venv/torch/optim/adam.py']) }));
      run.free(gradient);
      small.push(mask);
    }
    // Between two requests of the forward pass, they belong to it.
    expect(categories(run.trace(), small)).toEqual(new Set(['activation by stacks']));
  });
});

describe('call stacks with the names of classes, as Weir records them', () => {
  test('say the same as without', () => {
    const run = new Run();
    const main = ['<module>', '/home/me/train.py'] as const;
    const weight = run.alloc(8 * MIB, { stack: run.stack(main, ['Linear.__init__', '/venv/torch/nn/modules/linear.py']) });
    const states: number[] = [];
    for (let step = 0; step < 3; step++) {
      const backward = run.stack(main, ['Tensor.backward', '/venv/torch/_tensor.py']);
      run.free(run.alloc(20 * MIB, { stack: run.stack(main, ['Net.forward', '/home/me/net.py']) }), run.alloc(MIB, { stack: backward }));
      if (step === 0) states.push(run.alloc(8 * MIB, { stack: run.stack(main, ['Adam._init_group', '/venv/torch/optim/adam.py']) }));
      run.free(run.alloc(4 * MIB, { stack: run.stack(main, ['Adam.step', '/venv/torch/optim/adam.py']) }));
    }
    const trace = run.trace();
    expect(categories(trace, [weight])).toEqual(new Set(['parameter by stacks']));
    expect(categories(trace, states)).toEqual(new Set(['optimizerState by stacks']));
  });

  // Python has the names of classes since 3.11.
  test.each(['History.__init__', '__init__'])('make no parameters of what %s keeps, if the process told its parameters', (name) => {
    const run = new Run();
    const seen = train(run, true);
    run.tell(seen.weights[0]!, 'parameter');
    const kept = run.alloc(8 * MIB, { stack: run.stack(['<module>', '/home/me/train.py'], [name, '/home/me/history.py']) });
    run.mark(PhaseMark.backward);
    run.mark(PhaseMark.optimizer);
    run.mark(PhaseMark.step);
    run.mark(PhaseMark.step);
    expect(categories(run.trace(), [kept])).toEqual(new Set(['unknown by none']));
  });
});

describe('call stacks of constructors', () => {
  const failed = (filename: string, name: string) => {
    const run = new Run();
    const kept = run.alloc(8 * MIB, { stack: run.stack(['<module>', '/home/me/train.py'], [name, filename]) });
    return categories(run.trace(), [kept]);
  };

  test('make parameters of what modules keep, and nothing of what others keep, in a run that fails before any phase is known', () => {
    expect(failed('/venv/torch/nn/modules/linear.py', '__init__')).toEqual(new Set(['parameter by stacks']));
    expect(failed('/venv/torch/nn/modules/module.py', '_apply')).toEqual(new Set(['parameter by stacks']));
    expect(failed('/home/me/loader.py', 'load_state_dict')).toEqual(new Set(['parameter by stacks']));
    expect(failed('/home/me/replay_buffer.py', 'ReplayBuffer.__init__')).toEqual(new Set(['unknown by none']));
  });
});

describe('the sentence', () => {
  test('says last what was not found', () => {
    const run = new Run();
    const seen = train(run, true);
    run.tell(seen.weights[0]!, 'parameter');
    const live = categoriesAt(run.trace(), 3);
    expect(waysSentence(live)).toMatch(/^Found by what the process told: .*, not found: [\d.]+ %\.$/);
  });
});

describe('the parts', () => {
  test.each(SAMPLES)('of %s add up to what is live, at any moment', (path) => {
    for (const trace of tracesOf(path)) {
      const summary = summarizeTrace(trace);
      const all = categoriesOf(trace);
      for (const event of [summary.peakLiveEvent, -1, 0, trace.events.count >> 1, trace.events.count - 1]) {
        const { live, bytes, ways } = all.at(event);
        const sum = (parts: object) => Object.values(parts).reduce((total: number, part: number) => total + part, 0);
        expect([sum(bytes), sum(ways)]).toEqual([live, live]);
        if (event === summary.peakLiveEvent) expect(live).toBe(summary.peakLive);
      }
    }
  });

  test('add up where frees are missing', () => {
    const run = new Run();
    const address = run.alloc(4 * MIB);
    run.store.append(EventKind.Alloc, address, 6 * MIB, 5000, 0, 0, NO_STACK, 0);
    const trace = run.trace();
    expect([summarizeTrace(trace).peakLive, categoriesAt(trace, 1).live]).toEqual([6 * MIB, 6 * MIB]);
  });

  // VGG-16 has 138,357,544 parameters, ResNet-50 25,557,032 and 53,120 numbers in buffers, each of 4 bytes; SGD with momentum has one
  // number of state for each. GPT-2 XL has 1,557,611,200 of 2 bytes, and two of state. What is beyond that is rounding to 512 B.
  test.each([
    ['samples/vgg16-b100.native.pickle.gz', 138_357_544 * 4, 138_357_544 * 4],
    ['samples/vgg16-b100.expandable.pickle.gz', 138_357_544 * 4, 138_357_544 * 4],
    ['samples/resnet50-b100.native.pickle.gz', (25_557_032 + 53_120) * 4, 25_557_032 * 4],
    ['samples/gpt2xl-oom.pickle.gz', 1_557_611_200 * 2, 1_557_611_200 * 4],
  ])('%s: parameters and optimizer state as the model has them', (path, parameters, state) => {
    const [trace] = tracesOf(path);
    const { bytes, live } = categoriesAt(trace!, summarizeTrace(trace!).peakLiveEvent);
    expect(Math.abs(bytes.parameter / parameters - 1)).toBeLessThan(0.001);
    expect(Math.abs(bytes.optimizerState / state - 1)).toBeLessThan(0.001);
    expect(bytes.unknown / live).toBeLessThan(0.01);
  });
});

describe('a run without a backward pass', () => {
  test('has no activations or gradients, whatever its memory rises and falls like', () => {
    const trace = scripted((script) => {
      for (let turn = 0; turn < 40; turn++) {
        const row = (line: number) => [['/p/serve.py', line, 'answer']] as const;
        const kept = Array.from({ length: 12 }, (_, layer) => script.alloc((layer + 1) * 2 ** 20, row(layer + 1)));
        for (const block of kept.reverse()) {
          const next = script.alloc(block.size / 2, row(30));
          script.free(block);
          script.free(next);
        }
      }
    });
    const { peakLiveEvent } = summarizeTrace(trace);
    const { bytes, live } = categoriesAt(trace, peakLiveEvent);
    expect([bytes.gradient, bytes.activation, bytes.unknown + bytes.temporary]).toEqual([0, 0, live]);
  });
});
