// Random training programs, recorded as the recorder marks them: no memory is taken for something else than what it is.
// What cannot be known may be `unknown`. The program itself says what each block is; nothing of the code under test is asked.
import { describe, expect, test } from 'vitest';
import { CATEGORY_NAMES, type Category, PhaseMark } from '../../src/abi/events.ts';
import { MIB } from '../../src/base/bytes.ts';
import { categoriesOf } from '../../src/report/categories.ts';
import type { Trace } from '../../src/trace/trace.ts';
import { type Script, type ScriptedBlock, scripted } from '../support/scripted.ts';

const PROGRAMS = 600;

/** kept: averages, buffers of experience, lists of results. passing: inputs and losses, which a backward pass may need or not. */
type Truth = 'parameter' | 'gradient' | 'optimizerState' | 'activation' | 'temporary' | 'kept' | 'passing';

const ALLOWED: Record<Truth, readonly Category[]> = {
  parameter: ['parameter', 'unknown'],
  gradient: ['gradient', 'unknown'],
  optimizerState: ['optimizerState', 'unknown'],
  activation: ['activation', 'unknown'],
  temporary: ['temporary', 'unknown'],
  kept: ['unknown'],
  passing: ['activation', 'temporary', 'unknown'],
};

/** Same numbers for the same seed. */
class Random {
  private state: number;

  constructor(seed: number) {
    this.state = (seed * 7919 + 13) >>> 0;
  }

  below(limit: number): number {
    this.state = (Math.imul(this.state, 1664525) + 1013904223) >>> 0;
    return Math.floor((this.state / 2 ** 32) * limit);
  }

  of<T>(choices: readonly T[]): T {
    return choices[this.below(choices.length)]!;
  }
}

interface Life {
  readonly truth: Truth;
  /** Backward passes that were over when the block was taken, and when it was freed; undefined: never. */
  readonly from: number;
  to: number | undefined;
}

class Program {
  readonly trace: Trace;
  readonly lives = new Map<number, Life>();
  passes = 0;
  private readonly random: Random;
  private readonly options;
  private readonly sizes: readonly number[];
  private readonly live = new Set<ScriptedBlock>();
  private script!: Script;
  private gradients: ScriptedBlock[] = [];
  private states: ScriptedBlock[] = [];
  private loss: ScriptedBlock | undefined;

  constructor(seed: number) {
    const random = new Random(seed);
    this.random = random;
    this.options = {
      /** torch: marked. own: not known to Weir. stepped: the program calls weir_gpu.step(). */
      optimizer: random.of(['torch', 'own', 'stepped'] as const),
      tellsGradients: random.below(2) === 0,
      state: random.of(['first step', 'setup', 'none'] as const),
      parts: 1 + random.below(3),
      zero: random.of(['after', 'start', 'before backward', 'never'] as const),
      steps: 3 + random.below(6),
      end: random.of(['live', 'freed', 'in forward', 'in backward'] as const),
      averages: random.below(3) === 0,
      forgets: random.below(3) === 0,
      evaluates: random.below(2) === 0,
      keepsLoss: random.below(2) === 0,
      /** Forward passes before the first backward pass. */
      ahead: random.below(4) === 0 ? 2 + random.below(3) : 1,
    };
    this.sizes = Array.from({ length: 3 + random.below(4) }, (_, layer) => (8 + layer) * MIB);
    this.trace = scripted((script) => {
      this.script = script;
      this.run();
    });
  }

  get passesPerStep(): number {
    return this.options.parts * this.options.ahead;
  }

  describe(): string {
    return JSON.stringify(this.options);
  }

  private take(truth: Truth, size: number): ScriptedBlock {
    const block = this.script.alloc(size);
    this.lives.set(block.address, { truth, from: this.passes, to: undefined });
    this.live.add(block);
    return block;
  }

  private free(block: ScriptedBlock): void {
    this.lives.get(block.address)!.to = this.passes;
    this.live.delete(block);
    this.script.free(block);
  }

  private tell(block: ScriptedBlock, category: Category): void {
    this.script.tell(block.address, CATEGORY_NAMES.indexOf(category));
  }

  private scratch(size: number): void {
    const block = this.take('temporary', size);
    for (let more = this.random.below(6); more > 0; more--) this.free(this.take('temporary', MIB));
    this.free(block);
  }

  private zero(): void {
    for (const gradient of this.gradients) this.free(gradient);
    this.gradients = [];
  }

  private makeStates(): void {
    this.states = this.sizes.map((size) => this.take('optimizerState', size));
  }

  private run(): void {
    const { optimizer, state, steps, zero, end, averages, forgets, evaluates, ahead, parts } = this.options;
    for (const size of this.sizes) this.tell(this.take('parameter', size), 'parameter');
    if (state === 'setup') this.makeStates();
    if (averages) for (const size of this.sizes) this.take('kept', size + 4096);
    for (let step = 0; step < steps; step++) {
      const isLast = step === steps - 1;
      if (zero === 'start') this.zero();
      for (let part = 0; part < parts; part++) {
        const passes = Array.from({ length: ahead }, () => this.forward());
        if (isLast && end === 'in forward') return;
        if (zero === 'before backward' && part === 0) this.zero();
        for (const pass of passes) if (!this.backward(pass, isLast && end === 'in backward')) return;
      }
      if (optimizer === 'torch') this.script.mark(PhaseMark.optimizer);
      if (step === 0 && state === 'first step') this.makeStates();
      this.scratch(7 * MIB);
      if (optimizer === 'torch') for (const block of this.states) this.tell(block, 'optimizerState');
      if (optimizer !== 'own') this.script.mark(PhaseMark.step);
      if (zero === 'after') this.zero();
      if (forgets) this.take('kept', 2 * MIB);
      if (evaluates) for (const size of this.sizes) this.scratch(size);
    }
    if (end === 'freed') for (const block of this.live) this.free(block);
  }

  private forward(): ScriptedBlock[] {
    const input = this.take('passing', 3 * MIB);
    const results = this.sizes.map(() => {
      this.scratch(2 * MIB);
      return this.take('activation', (20 + this.random.below(5)) * MIB);
    });
    return [input, ...results];
  }

  /** False if it stops in between. */
  private backward([input, ...results]: readonly ScriptedBlock[], stops: boolean): boolean {
    const loss = this.take('passing', 512);
    if (this.loss) this.free(this.loss);
    this.loss = loss;
    this.script.mark(PhaseMark.backward);
    const isFirst = this.gradients.length === 0;
    for (let layer = results.length - 1; layer >= 0; layer--) {
      this.scratch(5 * MIB);
      if (isFirst) this.gradients.push(this.take('gradient', this.sizes[layer]!));
      else this.scratch(this.sizes[layer]!);
      this.free(results[layer]!);
      if (stops && layer === 1) return false;
    }
    this.passes++;
    this.script.mark(PhaseMark.forward);
    if (this.options.tellsGradients && isFirst) for (const gradient of this.gradients) this.tell(gradient, 'gradient');
    if (!this.options.keepsLoss) {
      this.free(loss);
      this.loss = undefined;
    }
    this.free(input!);
    return true;
  }
}

describe(`of ${PROGRAMS} random programs`, () => {
  test('no memory is taken for something else', () => {
    const counts = { right: 0, unknown: 0 };
    for (let seed = 0; seed < PROGRAMS; seed++) {
      const program = new Program(seed);
      const { allocations } = program.trace;
      const found = categoriesOf(program.trace);
      for (let allocation = 0; allocation < allocations.count; allocation++) {
        const { truth, from, to } = program.lives.get(allocations.address[allocation]!)!;
        const { category, way } = found.of(allocation);
        // A block that has seen less than two whole steps may yet be an activation, as may one that lived no longer.
        const isYoung = (to ?? program.passes) - from < 2 * program.passesPerStep;
        const isLasting = truth === 'kept' || truth === 'optimizerState';
        const allowed = isLasting && isYoung ? [...ALLOWED[truth], ...ALLOWED.passing] : ALLOWED[truth];
        expect(allowed, `${truth} as ${category} by ${way}, program ${seed} ${program.describe()}`).toContain(category);
        if (category === 'unknown') counts.unknown++;
        else counts.right++;
      }
    }
    expect(counts.right).toBeGreaterThan(10 * counts.unknown);
  });
});
