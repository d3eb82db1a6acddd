// Worker thread that watches all processes of a run for steps, plans the steps and writes the plan files.
// It is a thread because reading rings must never lag.
import { renameSync, writeFileSync } from 'node:fs';
import { parentPort } from 'node:worker_threads';
import { encodePlan } from '../../plan/files/process-plan.ts';
import { StepWatch, type WatchedPlan } from '../../plan/steps/step-watch.ts';
import { EventKind } from '../../trace/trace.ts';
import { PACKED, type PlanAnswer, type PlanFacts, type PlanRequest, unpackHead } from './plan-messages.ts';

interface Watched {
  readonly device: number;
  readonly prefix: string;
  readonly watch: StepWatch;
  /** Steps planned before, by their blocks. */
  readonly known: Set<string>;
  isWatching: boolean;
}

const watched = new Map<number, Watched>();
/** Number of the last plan of each process, over all its GPUs. */
const generations = new Map<string, number>();

function tell(answer: PlanAnswer): void {
  parentPort?.postMessage(answer);
}

parentPort?.on('message', (request: PlanRequest) => {
  const { key } = request;
  if (request.kind === 'begin') {
    const { device, prefix, countsSteps } = request;
    watched.set(key, { device, prefix, watch: new StepWatch({ countsSteps }), known: new Set(), isWatching: true });
    return;
  }
  const subject = watched.get(key);
  if (!subject) return;
  if (request.kind === 'end') watched.delete(key);
  else if (request.kind === 'restart') {
    subject.watch.restart(request.live, request.least);
    subject.isWatching = true;
  } else {
    if (subject.isWatching) take(key, subject, request);
    tell({ kind: 'taken', key, rows: request.rows.length / PACKED });
  }
});

function take(key: number, subject: Watched, { rows, levels, steps, streams }: Extract<PlanRequest, { kind: 'rows' }>): void {
  const { watch } = subject;
  for (let at = 0; at < rows.length; at += PACKED) {
    const { kind, stream } = unpackHead(rows[at]!);
    const address = rows[at + 1]!;
    if (kind === EventKind.Alloc) watch.alloc(address, rows[at + 2]!, stream);
    else if (kind === EventKind.FreeRequested) watch.freeRequested(address, rows[at + 2]!, stream);
    else if (kind === EventKind.FreeCompleted) watch.freeCompleted(address);
    else watch.mark(String(address));
    if (!watch.isDue) continue;
    const seen = watch.look(levels);
    if (seen.kind !== 'planned') {
      tell({ kind: seen.kind, key, reason: seen.reason });
      continue;
    }
    subject.isWatching = false;
    send(key, subject, seen, streams[seen.stream]);
    return;
  }
  if (steps !== undefined) watch.stepsEnded(steps);
}

function send(key: number, subject: Watched, seen: WatchedPlan, stream: bigint | undefined): void {
  const { step, layout, lowerBound } = seen.plan;
  // Equal requests with other lifetimes need another plan.
  const name = step.blocks.map(({ size, birth, death }) => `${size}.${death - birth}`).join();
  if (stream === undefined || subject.known.has(name)) {
    tell({ kind: 'known', key });
    return;
  }
  subject.known.add(name);
  const generation = (generations.get(subject.prefix) ?? 0) + 1;
  generations.set(subject.prefix, generation);
  const sizes = step.blocks.map(({ size }) => size);
  const { offsets, footprint } = layout;
  const path = `${subject.prefix}.${generation}.plan`;
  try {
    writeFileSync(`${path}.new`, encodePlan({ device: subject.device, stream, sizes, turns: step.turns, offsets, footprint }), {
      mode: 0o600,
    });
    renameSync(`${path}.new`, path);
  } catch (error) {
    tell({ kind: 'declined', key, reason: `the plan could not be written: ${error instanceof Error ? error.message : String(error)}` });
    return;
  }
  const { period, steps, from, expected, detectMs, planMs } = seen;
  const facts: PlanFacts = {
    period,
    requests: sizes.length,
    turns: step.turns,
    steps,
    footprint,
    lowerBound,
    from,
    expected,
    detectMs,
    planMs,
  };
  tell({ kind: 'planned', key, generation, facts });
}
