// Races the exact search in worker threads, one seed each, and stops all when one reaches the goal.
// The search itself is pure and is in src/plan. If no thread can be started, it runs in this one.
import { availableParallelism } from 'node:os';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { dismiss } from '../base/thread.ts';
import type { Buffer, Layout } from '../plan/offsets/buffers.ts';
import { canSearchExactly, searchFootprint } from '../plan/offsets/footprint-search.ts';
import type { Instance } from '../plan/offsets/instance.ts';
import { type OffsetsOptions, type OffsetsPlan, OffsetsPlanner } from '../plan/offsets/planner.ts';

export interface WorkerOptions extends OffsetsOptions {
  /** Most threads to use (default: one per core); 1 searches in this thread. */
  readonly threads?: number | undefined;
}

/** Word 0 of the shared memory tells the workers to stop. The rest is the best known footprint, as a double. */
const SHARED_BYTES = 16;

interface Job {
  readonly weirPlanWorker: true;
  readonly instance: Instance;
  readonly capacity: number | undefined;
  readonly seed: number;
  readonly shared: SharedArrayBuffer;
  readonly deadlineMs: number;
}

type Message = { readonly layout: Layout } | { readonly proven: number } | { readonly finished: true };

const FIRST_TRY_MS = 60;

export async function planOffsetsInWorkers(buffers: readonly Buffer[], options: WorkerOptions = {}): Promise<OffsetsPlan> {
  const planner = new OffsetsPlanner(buffers, options);
  planner.runPortfolio();
  const threads = Math.max(1, options.threads ?? Math.min(8, availableParallelism()));
  if (planner.isDone()) return planner.finish();
  if (threads === 1 || !canSearchExactly(planner.instance)) {
    planner.search();
    return planner.finish();
  }
  // Most inputs are solved within milliseconds, before a thread would have started.
  const firstTry = performance.now() + Math.min(FIRST_TRY_MS, planner.remainingMs);
  searchFootprint(planner.instance, {
    seed: planner.seed,
    capacity: options.capacity,
    best: () => planner.footprint,
    onFound: (layout) => planner.offer(layout, 'exact search'),
    onProven: (capacity) => planner.prove(capacity),
    shouldStop: () => performance.now() >= firstTry || planner.isDone(),
  });
  if (!planner.isDone() && !(await race(planner, threads, options.capacity))) planner.search();
  return planner.finish();
}

/** False: no thread could be started. */
async function race(planner: OffsetsPlanner, threads: number, capacity: number | undefined): Promise<boolean> {
  const shared = new SharedArrayBuffer(SHARED_BYTES);
  const stop = new Int32Array(shared, 0, 1);
  const best = new Float64Array(shared, 8, 1);
  best[0] = planner.footprint;
  const receive = (message: Message) => {
    if ('proven' in message) planner.prove(message.proven);
    else if ('layout' in message) planner.offer(message.layout, 'exact search');
    best[0] = planner.footprint;
    if (planner.isDone()) Atomics.store(stop, 0, 1);
  };
  const deadlineMs = Date.now() + planner.remainingMs;
  const runs = Array.from({ length: threads }, (_, index) => {
    const job: Job = { weirPlanWorker: true, instance: planner.instance, capacity, seed: planner.seed + 1 + index, shared, deadlineMs };
    return runWorker(job, receive);
  });
  const started = await Promise.all(runs);
  return started.some(Boolean);
}

function runWorker(job: Job, receive: (message: Message) => void): Promise<boolean> {
  return new Promise((resolve) => {
    let worker: Worker;
    try {
      worker = new Worker(new URL(import.meta.url), { workerData: job });
    } catch {
      resolve(false);
      return;
    }
    const end = (succeeded: boolean) => {
      dismiss(worker);
      resolve(succeeded);
    };
    worker.on('message', (message: Message) => {
      if ('finished' in message) end(true);
      else receive(message);
    });
    worker.on('error', () => end(false));
    worker.on('exit', () => end(false));
  });
}

function work(job: Job): void {
  const stop = new Int32Array(job.shared, 0, 1);
  const best = new Float64Array(job.shared, 8, 1);
  let own = Number.POSITIVE_INFINITY;
  searchFootprint(job.instance, {
    seed: job.seed,
    capacity: job.capacity,
    best: () => Math.min(own, best[0]!),
    onFound: (layout) => {
      own = Math.min(own, layout.footprint);
      parentPort?.postMessage({ layout } satisfies Message);
    },
    onProven: (capacity) => parentPort?.postMessage({ proven: capacity } satisfies Message),
    shouldStop: () => Atomics.load(stop, 0) !== 0 || Date.now() >= job.deadlineMs,
  });
  parentPort?.postMessage({ finished: true } satisfies Message);
}

if (!isMainThread && (workerData as Partial<Job> | null)?.weirPlanWorker) work(workerData as Job);
