// `npm run bench:planned -- [FOLDER...]`: trainings on the engine with a plan for their step, installed after some steps as in a real
// job, and the time of a request that the plan serves. Recordings, and files of tuning/fixed_programs.py in the folders, are continued
// by their last step. Writes bench/results/planned-<date>.json and .md.
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { compileParts, compileProgram, hasCompiler, libraryParts } from '../scripts/native-rules.mjs';
import { ENGINE_PRESETS } from '../src/abi/settings.ts';
import { createWeir } from '../src/allocator/engine/allocator.ts';
import { SimulatedBackend } from '../src/backend/simulated.ts';
import { MIB } from '../src/base/bytes.ts';
import { type MemoryOps, opsOfTrace } from '../src/plan/steps/memory-ops.ts';
import { mainStreamOf } from '../src/plan/steps/step.ts';
import { enginePlanOf, findStep, planStep, type StepPlan } from '../src/plan/steps/step-plan.ts';
import { MAIN_SHARE, mainShareOf } from '../src/plan/steps/watched-step.ts';
import { replay } from '../src/replay/replay.ts';
import type { Trace } from '../src/trace/trace.ts';
import { longerTrace } from './longer-trace.ts';
import { provenanceOf } from './provenance.ts';
import { requestsTrace } from './request-trace.ts';
import { type NamedTrace, trainingTraces } from './traces.ts';

const BUILD = 'build/native/bench';
const ROUNDS = '25';
/** The plan is installed after this many steps: it takes two to see a repetition. */
const INSTALLED_AFTER = 2;
/** From then on: a step to see that the plan is followed, some to take its memory, and to free the rest when the GPU is done. */
const SETTLED_AFTER = INSTALLED_AFTER + 8;
/** Steps that follow those of the recording. */
const FURTHER_STEPS = 20;

interface Row {
  readonly workload: string;
  readonly requests: number;
  readonly steps: number;
  readonly peakLive: number;
  readonly footprint: number;
  /** Peak reserved / peak live: of the whole run, and once it has settled. */
  readonly everRatio: number;
  readonly settledRatio: number;
  readonly callsPerStep: number;
  readonly driverMs: number;
  readonly hitShare: number;
  /** What is reserved and not live at the settled peak, in MiB. */
  readonly rest: Rest;
  /** Whether `weir run --plan` would not plan the job, because several streams share it. */
  readonly declined: boolean;
  /** Without a plan. */
  readonly plainRatio: number;
  readonly plainSettledRatio: number;
  readonly plainCallsPerStep: number;
  readonly plainDriverMs: number;
  readonly speed: Speed | null;
}

interface Rest {
  /** Free in handles that blocks beside the plan use in part. */
  readonly besideMib: number;
  readonly slabsMib: number;
  /** The plan's memory above its footprint. */
  readonly roundingMib: number;
}

interface Speed {
  readonly unplannedNs: number;
  readonly plannedNs: number;
  readonly unplannedCalls: number;
  readonly plannedCalls: number;
  readonly hitShare: number;
}

const callsOf = ({ ledger }: SimulatedBackend) => Object.values(ledger.calls).reduce((sum, calls) => sum + calls, 0);

/** Runs a job whose steps repeat, with the plan or, on the settings of every other job, without one. */
function run(trace: Trace, ops: MemoryOps, plan: StepPlan, planned: boolean) {
  const { start, period } = plan.step;
  const eventOf = (op: number) => ops.event?.[Math.min(op, ops.count - 1)] ?? 0;
  const installAt = eventOf(start + INSTALLED_AFTER * period - 1);
  const settledOp = start + SETTLED_AFTER * period;
  const settledAt = eventOf(settledOp);
  let calls = 0;
  let hits = 0;
  let settledReserved = 0;
  let settledLive = 0;
  let peakEvent = 0;
  const replayed = (backend: SimulatedBackend, stopBefore: number | undefined) =>
    replay(trace, (context) => createWeir(context, planned ? ENGINE_PRESETS.planned : {}), {
      backend,
      stopBefore,
      observer: {
        placed: () => {},
        after: (event, allocator) => {
          const engine = allocator as ReturnType<typeof createWeir>;
          if (event === installAt && planned && engine.installPlan(enginePlanOf(plan)) === 0) throw new Error('the plan was refused');
          if (stopBefore !== undefined || event < settledAt) return;
          if (event === settledAt) {
            calls = callsOf(backend);
            hits = engine.planStatistics.hits;
          }
          settledReserved = Math.max(settledReserved, allocator.reservedBytes);
          if (allocator.allocatedBytes > settledLive) {
            settledLive = allocator.allocatedBytes;
            peakEvent = event;
          }
        },
      },
    });
  const backend = new SimulatedBackend();
  const result = replayed(backend, undefined);
  const engine = result.allocator as ReturnType<typeof createWeir>;
  engine.check();
  const steps = (ops.count - settledOp) / period;
  return {
    everRatio: result.peakReserved / ops.peak,
    settledRatio: settledReserved / ops.peak,
    callsPerStep: (callsOf(backend) - calls) / steps,
    driverMs: result.driver.timeUs / 1e3,
    hitShare: (engine.planStatistics.hits - hits) / (steps * plan.step.blocks.length),
    steps: Math.round(ops.count / period),
    peakLive: ops.peak,
    rest: restAt(replayed(new SimulatedBackend(), peakEvent + 1).allocator as ReturnType<typeof createWeir>, plan),
  };
}

function restAt(engine: ReturnType<typeof createWeir>, { layout }: StepPlan): Rest {
  const free = (small: boolean) =>
    engine
      .census()
      .filter((group) => group.small === small)
      .reduce((sum, group) => sum + group.free, 0);
  const { arenaBytes } = engine.planStatistics;
  const rounding = Math.max(0, arenaBytes - layout.footprint);
  return { besideMib: (free(false) - rounding) / MIB, slabsMib: free(true) / MIB, roundingMib: rounding / MIB };
}

/** The recordings of ../shared, and the files of requests in folders. */
function trainings(folders: readonly string[]): (NamedTrace & { readonly isRecorded: boolean })[] {
  const files = folders.flatMap((folder) =>
    readdirSync(folder)
      .sort()
      .map((file) => ({ folder, file })),
  );
  const programs = files
    .filter(({ file }) => file.endsWith('.requests.gz'))
    .map(({ folder, file }) => ({ name: file.replace('.requests.gz', ''), trace: requestsTrace(`${folder}/${file}`), isRecorded: false }));
  return [...trainingTraces().map((training) => ({ ...training, isRecorded: true })), ...programs];
}

let isCompiled = false;

/** Nanoseconds per request and free in the C engine, on the planned step; null without a compiler. */
function speedOf({ step, layout }: StepPlan): Speed | null {
  if (!hasCompiler('cpp')) return null;
  if (!isCompiled) {
    // Not the library: it hides what the runtime calls to do without the engine's own lock.
    const objects = compileParts(libraryParts('libweir_engine.so'), 'release', `${BUILD}/objects`);
    compileProgram(['bench/planned.cpp'], 'bench', `${BUILD}/planned`, objects);
    isCompiled = true;
  }
  const operations = step.blocks
    .flatMap(({ birth, death, size }, slot) => [
      { at: birth, slot, bytes: size },
      { at: (death - 1) % step.period, slot, bytes: 0 },
    ])
    .sort((a, b) => a.at - b.at || a.bytes - b.bytes);
  const row = 8 + 8 * step.turns;
  const data = new DataView(new ArrayBuffer(24 + step.blocks.length * row + operations.length * 16));
  for (const [index, value] of [step.blocks.length, step.turns, operations.length, step.blocks.length].entries()) {
    data.setUint32(4 * index, value, true);
  }
  data.setBigUint64(16, BigInt(layout.footprint), true);
  step.blocks.forEach(({ size }, index) => {
    data.setBigUint64(24 + index * row, BigInt(size), true);
    for (let turn = 0; turn < step.turns; turn++) {
      data.setBigUint64(32 + index * row + 8 * turn, BigInt(layout.offsets[index * step.turns + turn]!), true);
    }
  });
  operations.forEach(({ slot, bytes }, index) => {
    const at = 24 + step.blocks.length * row + index * 16;
    data.setUint32(at, slot, true);
    data.setBigUint64(at + 8, BigInt(bytes), true);
  });
  writeFileSync(`${BUILD}/step`, new Uint8Array(data.buffer));
  const result = spawnSync(`${BUILD}/planned`, [`${BUILD}/step`, ROUNDS], { encoding: 'utf8' });
  if (result.status !== 0) throw new Error(`status ${result.status}: ${result.stderr}`);
  return JSON.parse(result.stdout) as Speed;
}

const rows: Row[] = [];
for (const { name, trace, isRecorded } of trainings(process.argv.slice(2))) {
  const recorded = opsOfTrace(trace);
  const found = findStep(recorded);
  if (!found.periodic) {
    console.log(`${name}: no plan, ${found.reason}`);
    continue;
  }
  const plan = planStep(mainStreamOf(found.step), { budgetMs: 1500 });
  const longer = longerTrace(trace, recorded, plan.step.start, plan.step.period, FURTHER_STEPS);
  const ops = opsOfTrace(longer);
  const plain = run(longer, ops, plan, false);
  rows.push({
    workload: name,
    requests: plan.step.blocks.length,
    footprint: plan.layout.footprint,
    ...run(longer, ops, plan, true),
    declined: mainShareOf(found.step) < MAIN_SHARE,
    plainRatio: plain.everRatio,
    plainSettledRatio: plain.settledRatio,
    plainCallsPerStep: plain.callsPerStep,
    plainDriverMs: plain.driverMs,
    // Requests take as long in every training.
    speed: isRecorded ? speedOf(plan) : null,
  });
}

const number = (value: number | undefined, digits: number) => (value === undefined ? '-' : value.toFixed(digits));
const table = [
  '| training | requests per step | without plan: ever | settled | calls per step | driver ms | planned: ever | settled | calls per step | driver ms | rest, MiB: beside the plan | in slabs | rounding | at their places | ns per malloc + free, native: unplanned | planned |',
  '|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|',
  ...rows.map((row) =>
    [
      '',
      row.declined ? `${row.workload} (not planned by weir run)` : row.workload,
      row.requests,
      number(row.plainRatio, 4),
      number(row.plainSettledRatio, 4),
      number(row.plainCallsPerStep, 1),
      number(row.plainDriverMs, 0),
      number(row.everRatio, 4),
      number(row.settledRatio, 4),
      number(row.callsPerStep, 1),
      number(row.driverMs, 0),
      number(row.rest.besideMib, 1),
      number(row.rest.slabsMib, 1),
      number(row.rest.roundingMib, 1),
      `${number(100 * row.hitShare, 1)} %`,
      number(row.speed?.unplannedNs, 0),
      number(row.speed?.plannedNs, 0),
      '',
    ]
      .join(' | ')
      .trim(),
  ),
];
console.log(table.join('\n'));
const source = provenanceOf(process.argv.length > 2 ? 'npm run bench:planned -- FOLDER' : 'npm run bench:planned');
mkdirSync('bench/results', { recursive: true });
writeFileSync(`bench/results/planned-${source.date}.json`, `${JSON.stringify({ schema: 2, ...source, rows }, null, 2)}\n`);
writeFileSync(`bench/results/planned-${source.date}.md`, `${table.join('\n')}\n`);
