// `npm run bench:swapped`: a step of GPT-2 XL with swapping, in the engine: overhead and driver calls per step, without and with a
// plan. A profile of a real run decides which optimizer state is swapped out.
import { readFileSync, writeFileSync } from 'node:fs';
import { createWeir, type EngineAllocator } from '../src/allocator/engine/allocator.ts';
import { SimulatedBackend } from '../src/backend/simulated.ts';
import { MIB } from '../src/base/bytes.ts';
import { type MemoryOps, opsOfTrace } from '../src/plan/steps/memory-ops.ts';
import { enginePlanOf } from '../src/plan/steps/step-plan.ts';
import { StepWatch } from '../src/plan/steps/step-watch.ts';
import { planProfile } from '../src/plan/swaps/live/planner.ts';
import { readSwapProfile } from '../src/plan/swaps/live/profile.ts';
import { provenanceOf } from './provenance.ts';
import { trainingTraces } from './traces.ts';

const TRAINING = 'gpt2xl-R-var';
const PROFILE = 'test/plan/profiles/gpt2xl-h200.json';
/** Allocations and frees per step, the same number for every sequence length. */
const PERIOD = 10_774;
const STEPS = 30;
/** First step that swaps, first step that is watched for a plan, first step that counts as settled. */
const SWAPS_FROM = 2;
const WATCHED_FROM = 3;
const SETTLED_FROM = 22;
/** As shares of a step: when state is swapped out and in, and how long after birth and before death saved tensors are. */
const STATE_LEAVES = [0.02, 0.17] as const;
const STATE_RETURNS = [0.87, 0.97] as const;
const SAVED_LEAVES = 0.03;
const SAVED_RETURNS = 0.02;
/** Where the first step that swaps calls `emptyCache()`, as a share of the step. */
const RELEASED_AT = 0.25;

type Action = { readonly kind: 'alloc' | 'free'; readonly block: number };

const { trace } = trainingTraces().find(({ name }) => name === TRAINING)!;
const ops = opsOfTrace(trace);
const state = stateOf(ops);
const body = bodyOf(ops, longestStep(ops, state.at(-1)! + 1));
const plan = planProfile(readSwapProfile(JSON.parse(readFileSync(PROFILE, 'utf8'))));
const leaving = plan.moves
  .filter((move) => move.class === 'item')
  .sort((a, b) => a.out - b.out)
  .map((move) => state[move.index]!);

/** Optimizer state: blocks that are never freed and come after the longest pause; those before it are parameters. */
function stateOf({ count, isAlloc, partner, size }: MemoryOps): number[] {
  const kept = Array.from({ length: count }, (_, op) => op).filter((op) => isAlloc[op] && partner[op]! < 0);
  let pause = 1;
  for (let index = 1; index < kept.length; index++) if (kept[index]! - kept[index - 1]! > kept[pause]! - kept[pause - 1]!) pause = index;
  return kept.slice(pause).filter((op) => size[op]! >= MIB);
}

/** The operation with the least live memory in the step with the highest peak. */
function longestStep({ count, isAlloc, size }: MemoryOps, from: number): number {
  const live = new Float64Array(count);
  for (let op = 0; op < count; op++) live[op] = (live[op - 1] ?? 0) + (isAlloc[op] ? size[op]! : -size[op]!);
  let best = from;
  let peak = 0;
  for (let start = from; start + 2 * PERIOD <= count; start += PERIOD) {
    const highest = live.subarray(start, start + PERIOD).reduce((most, bytes) => Math.max(most, bytes), 0);
    if (highest > peak) [best, peak] = [start, highest];
  }
  let least = best;
  for (let op = best; op < best + PERIOD; op++) if (live[op]! < live[least]!) least = op;
  return least + 1;
}

/** Requests and frees of the blocks of one step. A block that outlives the step is freed at its end. */
function bodyOf({ isAlloc, partner }: MemoryOps, start: number): Action[] {
  const actions: Action[] = [];
  for (let op = start; op < start + PERIOD; op++) {
    if (isAlloc[op]) actions.push({ kind: 'alloc', block: op });
    else if (partner[op]! >= start) actions.push({ kind: 'free', block: partner[op]! });
  }
  for (let op = start; op < start + PERIOD; op++)
    if (isAlloc[op] && !(partner[op]! < start + PERIOD && partner[op]! >= 0)) actions.push({ kind: 'free', block: op });
  return actions;
}

/** The same step with swapping: a block is freed when it is swapped out, and allocated when it is swapped in. */
function swappedBody(): Action[] {
  const extra = new Map<number, Action[]>();
  const at = (place: number, action: Action) => extra.set(place, [...(extra.get(place) ?? []), action]);
  const between = ([from, to]: readonly [number, number], share: number) => Math.floor(body.length * (from + (to - from) * share));
  leaving.forEach((block, index) => {
    at(between(STATE_LEAVES, index / leaving.length), { kind: 'free', block });
    at(between(STATE_RETURNS, index / leaving.length), { kind: 'alloc', block });
  });
  const ends = new Map(body.flatMap(({ kind, block }, place) => (kind === 'free' ? [[block, place] as const] : [])));
  body.forEach(({ kind, block }, place) => {
    const end = ends.get(block)!;
    if (kind === 'free' || ops.size[block]! < 8 * MIB || place > 0.3 * body.length || end - place < 0.25 * body.length) return;
    at(place + Math.floor(SAVED_LEAVES * body.length), { kind: 'free', block });
    at(end - Math.floor(SAVED_RETURNS * body.length), { kind: 'alloc', block });
  });
  return body.flatMap((action, place) => [...(extra.get(place) ?? []), action]);
}

interface Row {
  readonly run: string;
  readonly allocated: number;
  readonly reserved: number;
  readonly callsPerStep: number;
}

function run(name: string, isSwapping: boolean, isPlanned: boolean): Row {
  const backend = new SimulatedBackend();
  const engine: EngineAllocator = createWeir({ backend, streams: [0] });
  const watch = new StepWatch();
  const blocks = new Map<number, number>();
  const figures = { live: 0, allocated: 0, reserved: 0, calls: 0 };
  let isWatching = false;
  const act = ({ kind, block }: Action) => {
    const bytes = ops.size[block]!;
    if (kind === 'alloc') {
      const given = engine.malloc(bytes, 0, 0);
      blocks.set(block, given);
      if (isWatching) watch.alloc(given + 1, bytes, 0);
      figures.live += bytes;
    } else {
      const given = blocks.get(block)!;
      blocks.delete(block);
      if (isWatching) {
        watch.freeRequested(given + 1, bytes, 0);
        watch.freeCompleted(given + 1);
      }
      engine.free(given);
      engine.complete(given);
      figures.live -= bytes;
    }
    figures.allocated = Math.max(figures.allocated, figures.live);
    figures.reserved = Math.max(figures.reserved, engine.reservedBytes);
  };
  const callsSoFar = () => Object.values(backend.ledger.calls).reduce((sum, calls) => sum + calls, 0);
  const swapped = swappedBody();
  // As recorded, up to the step after the one that makes the state, so that the state lies between other blocks.
  for (let op = 0; op < state.at(-1)! + PERIOD; op++) {
    if (ops.isAlloc[op]) act({ kind: 'alloc', block: op });
    else if (ops.partner[op]! >= 0) act({ kind: 'free', block: ops.partner[op]! });
  }
  for (const block of [...blocks.keys()]) if (ops.partner[block]! >= 0) act({ kind: 'free', block });
  for (let step = 0; step < STEPS; step++) {
    if (step === SETTLED_FROM) Object.assign(figures, { allocated: 0, reserved: 0, calls: callsSoFar() });
    if (step === WATCHED_FROM && isPlanned) {
      watch.restart(figures.live);
      isWatching = true;
    }
    const actions = isSwapping && step >= SWAPS_FROM ? swapped : body;
    actions.forEach((action, place) => {
      if (isSwapping && step === SWAPS_FROM && place === Math.floor(RELEASED_AT * actions.length)) engine.emptyCache();
      act(action);
      if (!isWatching || !watch.isDue) return;
      const seen = watch.look({ reserved: engine.reservedBytes, outside: 0 });
      if (seen.kind !== 'planned') return;
      isWatching = false;
      if (engine.installPlan(enginePlanOf(seen.plan)) === 0) throw new Error('the plan was refused');
    });
  }
  engine.check();
  const { allocated, reserved, calls } = figures;
  return { run: name, allocated, reserved, callsPerStep: (callsSoFar() - calls) / (STEPS - SETTLED_FROM) };
}

const rows = [run('no swaps', false, false), run('swaps', true, false), run('swaps at planned places', true, true)];
const gib = (bytes: number) => (bytes / 2 ** 30).toFixed(2);
const source = provenanceOf('npm run bench:swapped', 'modelled driver, H200 costs');
const text = [
  `# A swapped step of GPT-2 XL, ${source.date}`,
  '',
  `\`npm run bench:swapped\`: modelled driver; ${leaving.length} of ${state.length} tensors of state and what is saved for backward leave.`,
  '',
  '| | allocated GiB | reserved GiB | reserved / allocated | driver calls per step |',
  '|---|---|---|---|---|',
  ...rows.map(
    (row) =>
      `| ${row.run} | ${gib(row.allocated)} | ${gib(row.reserved)} | ${(row.reserved / row.allocated).toFixed(4)} | ${row.callsPerStep.toFixed(1)} |`,
  ),
  '',
].join('\n');
writeFileSync(`bench/results/swapped-${source.date}.json`, `${JSON.stringify({ schema: 1, ...source, rows }, null, 2)}\n`);
writeFileSync(`bench/results/swapped-${source.date}.md`, text);
console.log(text);
