// `npm run bench:planned`: recorded trainings on the engine with a plan for their step, installed after some steps as in a real job,
// and the time of a request that the plan serves. Writes bench/results/planned-<date>.json and .md.
import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { compileProgram, hasCompiler, linkedWith } from '../scripts/native-rules.mjs';
import { createWeir } from '../src/allocator/engine/allocator.ts';
import { SimulatedBackend } from '../src/backend/simulated.ts';
import { opsOfTrace } from '../src/plan/steps/memory-ops.ts';
import { mainStreamOf } from '../src/plan/steps/step.ts';
import { enginePlanOf, findStep, planStep, type StepPlan } from '../src/plan/steps/step-plan.ts';
import { replay } from '../src/replay/replay.ts';
import type { Trace } from '../src/trace/trace.ts';
import { provenanceOf } from './provenance.ts';
import { trainingTraces } from './traces.ts';

const BUILD = 'build/native/bench';
const ROUNDS = '25';
/** The plan is installed after this many steps: it takes two to see a repetition. */
const INSTALLED_AFTER = 2;

interface Row {
  readonly workload: string;
  readonly requests: number;
  readonly steps: number;
  readonly peakLive: number;
  readonly footprint: number;
  /** Peak reserved / peak live: of the whole run, and after the step that releases memory the plan does not need. */
  readonly everRatio: number;
  readonly settledRatio: number;
  readonly callsPerStep: number;
  readonly hitShare: number;
  /** Without a plan. */
  readonly plainRatio: number;
  readonly plainCallsPerStep: number;
  readonly speed: Speed | null;
}

interface Speed {
  readonly unplannedNs: number;
  readonly plannedNs: number;
  readonly unplannedCalls: number;
  readonly plannedCalls: number;
  readonly hitShare: number;
}

const callsOf = ({ ledger }: SimulatedBackend) => Object.values(ledger.calls).reduce((sum, calls) => sum + calls, 0);

function run(trace: Trace, plan: StepPlan, planned: boolean) {
  const ops = opsOfTrace(trace);
  const { start, period } = plan.step;
  const eventOf = (op: number) => ops.event?.[Math.min(op, ops.count - 1)] ?? 0;
  const installAt = eventOf(start + INSTALLED_AFTER * period - 1);
  // One step to see that the plan is followed, up to three to take its memory, one to release the rest.
  const settledAt = eventOf(Math.min(start + (INSTALLED_AFTER + 4) * period, ops.count - period));
  const backend = new SimulatedBackend();
  let settledReserved = 0;
  let calls = 0;
  let hits = 0;
  const result = replay(trace, (context) => createWeir(context), {
    backend,
    observer: {
      placed: () => {},
      after: (event, allocator) => {
        const engine = allocator as ReturnType<typeof createWeir>;
        if (event === installAt && planned && engine.installPlan(enginePlanOf(plan)) === 0) throw new Error('the plan was refused');
        if (event === settledAt) {
          calls = callsOf(backend);
          hits = engine.planStatistics.hits;
        }
        if (event >= settledAt) settledReserved = Math.max(settledReserved, allocator.reservedBytes);
      },
    },
  });
  const engine = result.allocator as ReturnType<typeof createWeir>;
  engine.check();
  const steps = (ops.count - Math.min(start + (INSTALLED_AFTER + 4) * period, ops.count - period)) / period;
  return {
    everRatio: result.peakReserved / ops.peak,
    settledRatio: settledReserved / ops.peak,
    callsPerStep: (callsOf(backend) - calls) / steps,
    hitShare: (engine.planStatistics.hits - hits) / (steps * plan.step.blocks.length),
    steps: Math.round(ops.count / period),
    peakLive: ops.peak,
  };
}

/** Nanoseconds per request and free in the C engine, on the planned step; null without a compiler. */
function speedOf({ step, layout }: StepPlan): Speed | null {
  if (!hasCompiler('cpp')) return null;
  compileProgram(['bench/planned.cpp'], 'bench', `${BUILD}/planned`, linkedWith('libweir_engine.so', '..'));
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
for (const { name, trace } of trainingTraces()) {
  const found = findStep(opsOfTrace(trace));
  if (!found.periodic) {
    console.log(`${name}: no plan, ${found.reason}`);
    continue;
  }
  const plan = planStep(mainStreamOf(found.step), { budgetMs: 1500 });
  const plain = run(trace, plan, false);
  rows.push({
    workload: name,
    requests: plan.step.blocks.length,
    footprint: plan.layout.footprint,
    ...run(trace, plan, true),
    plainRatio: plain.everRatio,
    plainCallsPerStep: plain.callsPerStep,
    speed: speedOf(plan),
  });
}

const number = (value: number | undefined, digits: number) => (value === undefined ? '-' : value.toFixed(digits));
const table = [
  '| training | requests per step | without plan: reserved / live | calls per step | planned: ever | settled | calls per step | at their places | ns per malloc + free, native: unplanned | planned |',
  '|---|---|---|---|---|---|---|---|---|---|',
  ...rows.map((row) =>
    [
      '',
      row.workload,
      row.requests,
      number(row.plainRatio, 4),
      number(row.plainCallsPerStep, 1),
      number(row.everRatio, 4),
      number(row.settledRatio, 4),
      number(row.callsPerStep, 1),
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
const source = provenanceOf('npm run bench:planned');
mkdirSync('bench/results', { recursive: true });
writeFileSync(`bench/results/planned-${source.date}.json`, `${JSON.stringify({ schema: 1, ...source, rows }, null, 2)}\n`);
writeFileSync(`bench/results/planned-${source.date}.md`, `${table.join('\n')}\n`);
