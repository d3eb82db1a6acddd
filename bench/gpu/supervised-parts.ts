// The parts of `npm run bench:gpu` that use `weir run`: plans, swapping, both in deterministic mode, and swapping in debug mode.
// Timed runs have the GPU to themselves. Runs of which only the values count share it.
import { runSupervised, type SupervisedResult } from './supervised.ts';
import type { Job, TrainingServer } from './training-server.ts';

type Shape = Pick<Job, 'workload' | 'batch'>;
interface FixedShape extends Shape {
  /** Enough steps to watch, plan and follow. Deterministic mode is slow and gets fewer. */
  readonly steps: number;
  readonly deterministicSteps: number;
  /** Deterministic steps of all runs but `--swap auto`; few if a step takes seconds. */
  readonly fewSteps: number;
  /** A memory limit under which PyTorch's allocator runs out of memory. */
  readonly limit: number;
  /** Whether its losses with `--plan` alone are compared in the part `identical`. */
  readonly isPlanned: boolean;
}

const GIB = 2 ** 30;
/** Workloads with equal steps. Making a swap plan takes seconds, so short steps need to be many. */
const FIXED: readonly FixedShape[] = [
  { workload: 'vgg16-b100', steps: 240, deterministicSteps: 60, fewSteps: 60, limit: 7 * GIB, isPlanned: true },
  { workload: 'resnet50-b100', steps: 250, deterministicSteps: 120, fewSteps: 120, limit: 7 * GIB, isPlanned: true },
  { workload: 'opt1b3-R', steps: 42, deterministicSteps: 32, fewSteps: 16, limit: 21 * GIB, isPlanned: true },
  { workload: 'gpt2xl-fixed', batch: 16, steps: 36, deterministicSteps: 32, fewSteps: 16, limit: 16 * GIB, isPlanned: true },
  { workload: 'opt1b3-fixed', batch: 12, steps: 90, deterministicSteps: 36, fewSteps: 36, limit: 22 * GIB, isPlanned: false },
];
/** Trainings of the part `plan`. Steps are enough to watch, plan, follow the plan and settle, for a third of them to be settled. */
const PLANNED: readonly (Shape & { readonly steps: number })[] = [
  { workload: 'vgg16-b100', steps: 240 },
  { workload: 'resnet50-b100', steps: 250 },
  { workload: 'opt1b3-R', steps: 60 },
  { workload: 'gpt2xl-fixed', batch: 16, steps: 60 },
  { workload: 'convnext-fixed', batch: 64, steps: 120 },
  { workload: 'llama-lora-fixed', batch: 16, steps: 90 },
];
/** Steps in deterministic mode whose losses are compared to the bit. */
const COMPARED_STEPS = 50;
/** Runs that share the GPU cannot measure the cost of swapping, so it must not decide how much is swapped. */
const WHATEVER_IT_TAKES = { WEIR_SWAP_TOLERANCE: 'any' };
/** Steps of runs without a plan. */
const UNPLANNED_STEPS = 10;
/** Debug mode covers all workloads. If no step repeats, there is no plan and everything possible is swapped. */
const DEBUGGED: readonly (Shape & { readonly steps: number; readonly flag: string })[] = [
  { workload: 'vgg16-b100', steps: 60, flag: 'auto' },
  { workload: 'resnet50-b100', steps: 80, flag: 'auto' },
  { workload: 'opt1b3-R', steps: 16, flag: 'auto' },
  { workload: 'gpt2xl-fixed', batch: 8, steps: 16, flag: '10GiB' },
  { workload: 'bert-wavelet', steps: 6, flag: '4GiB' },
  { workload: 'opt1b3-N-var', steps: 4, flag: '16GiB' },
  { workload: 'gpt2xl-R-var', steps: 3, flag: '10GiB' },
  { workload: 'opt13b-LR-var', steps: 2, flag: '20GiB' },
  { workload: 'llama7b-LRO-var', steps: 2, flag: '8GiB' },
];
const SIDE_BY_SIDE = 4;
/** Names that `only=` accepts for these parts. */
export const SUPERVISED_WORKLOADS: readonly string[] = [...FIXED, ...PLANNED, ...DEBUGGED].map(({ workload }) => workload);

export interface PartsContext {
  readonly workloads: string;
  readonly server: TrainingServer;
  /** Workloads to run; empty means all. */
  readonly only: readonly string[];
  readonly add: (result: SupervisedResult) => void;
}

const isWanted = (context: PartsContext, { workload }: Shape) => context.only.length === 0 || context.only.includes(workload);
const shapeOf = ({ workload, batch }: Shape): Shape => ({ workload, ...(batch !== undefined && { batch }) });

/**
 * With `--plan` and without, between two runs of PyTorch default; then, in deterministic mode, with `--plan` and on PyTorch default.
 * All run one after the other, so that their times count.
 */
export async function planPart(context: PartsContext): Promise<void> {
  for (const shape of PLANNED.filter((planned) => isWanted(context, planned))) {
    const native: Job = { ...shapeOf(shape), steps: UNPLANNED_STEPS, allocator: 'native' };
    const weir: Job = { ...native, steps: shape.steps, allocator: 'weir' };
    await trainAlone(context, [native]);
    context.add(await runSupervised(context.workloads, weir, []));
    context.add(await runSupervised(context.workloads, weir, ['--plan']));
    await trainAlone(context, [native]);
    const compared = { deterministic: true, steps: COMPARED_STEPS };
    await trainAlone(context, [{ ...native, ...compared }]);
    context.add(await runSupervised(context.workloads, { ...weir, ...compared }, ['--plan']));
  }
}

/** `--swap auto` and PyTorch's `save_on_cpu`, between two runs of PyTorch default. */
export async function swapPart(context: PartsContext): Promise<void> {
  for (const shape of FIXED.filter((fixed) => isWanted(context, fixed))) {
    const native: Job = { ...shapeOf(shape), steps: UNPLANNED_STEPS, allocator: 'native' };
    await trainAlone(context, [native, { ...native, saveOnCpu: true }]);
    context.add(await runSupervised(context.workloads, { ...native, steps: shape.steps, allocator: 'weir' }, ['--swap', 'auto']));
    await trainAlone(context, [native]);
  }
}

/** Bitwise equal losses: with a plan, with swapping, and under a limit at which PyTorch runs out of memory. */
export async function identicalPart(context: PartsContext): Promise<void> {
  const shapes = FIXED.filter((fixed) => isWanted(context, fixed));
  const supervised = shapes.flatMap((shape): [Job, string[]][] => {
    const job: Job = {
      ...shapeOf(shape),
      steps: shape.deterministicSteps,
      deterministic: true,
      allocator: 'weir',
      environment: WHATEVER_IT_TAKES,
    };
    const few = { ...job, steps: shape.fewSteps };
    const runs: [Job, string[]][] = [
      [job, ['--swap', 'auto']],
      [few, limitedTo(shape.limit)],
    ];
    return shape.isPlanned ? [...runs, [few, ['--plan']]] : runs;
  });
  const natives = shapes.flatMap((shape): Job[] => {
    const native: Job = { ...shapeOf(shape), steps: shape.deterministicSteps, deterministic: true, allocator: 'native' };
    return [native, { ...native, steps: UNPLANNED_STEPS, limit: shape.limit }];
  });
  await Promise.all([trainAlone(context, natives), sideBySide(context, supervised, SIDE_BY_SIDE - 1)]);
}

/** Debug mode compares checksums of every copy and unmaps released memory at once. */
export async function debugPart(context: PartsContext): Promise<void> {
  const jobs = DEBUGGED.filter((shape) => isWanted(context, shape)).map((shape): [Job, string[]] => [
    { ...shapeOf(shape), steps: shape.steps, allocator: 'weir', environment: { WEIR_SWAP_DEBUG: '1' } },
    ['--swap', shape.flag],
  ]);
  await sideBySide(context, jobs, SIDE_BY_SIDE);
}

/** The allocator's limit is a little above the limit of tensors, because swapping does not see all memory. */
function limitedTo(limit: number): string[] {
  return ['--swap', String(limit), '--limit', String(Math.round(1.04 * limit))];
}

async function trainAlone(context: PartsContext, jobs: readonly Job[]): Promise<void> {
  for (const job of jobs) for (const result of await context.server.run([job])) context.add(result);
}

async function sideBySide(context: PartsContext, jobs: readonly (readonly [Job, readonly string[]])[], width: number): Promise<void> {
  const waiting = [...jobs];
  const work = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) context.add(await runSupervised(context.workloads, next[0], next[1]));
  };
  await Promise.all(Array.from({ length: width }, work));
}
