// `npm run bench:plan`, first part: offsets for minimalloc's tight instances, idealloc's large ones and SmartPool's traces.
// The planner throws if the verifier refuses a layout, so every layout in the tables is correct.
import { planOffsetsInWorkers } from '../src/cli/plan-workers.ts';
import { readBufferCsv } from '../src/plan/files/buffer-csv.ts';
import { readMallocText } from '../src/plan/files/malloc-text.ts';
import { type MemoryOps, OpsBuilder } from '../src/plan/steps/memory-ops.ts';
import { buffersOfStep } from '../src/plan/steps/step.ts';
import { findStep } from '../src/plan/steps/step-plan.ts';
import { verifyStepPlan } from '../src/plan/steps/verifier.ts';
import { keepResults, readShared, type Table } from './plan-support.ts';

const CAPACITY = 1_048_576;
/** Milliseconds, from the slides of the minimalloc paper. */
const MINIMALLOC_MS: Readonly<Record<string, number>> = {
  A: 4910,
  B: 3661,
  C: 637,
  D: 2674,
  E: 3717,
  F: 5358,
  G: 1181,
  H: 1808,
  I: 3908,
  J: 883,
  K: 628,
};
const IDEALLOC: readonly (readonly [string, number])[] = [
  ['resnet50', 1],
  ['G_1', 1],
  ['pangu_2.6B', 1.0076],
  ['S_1', 1.002],
  ['Y_1', 1],
];
const SMARTPOOL: readonly (readonly [string, string, number, number, string])[] = [
  ['alex', 'AlexNet', 1.0012, 1.0017, '1.088'],
  ['vgg', 'VGG', 1.0145, 1.0515, '1.104'],
  ['resnet', 'ResNet', 1.0035, 1.0048, '1.044'],
];

const only = process.argv[2];
const tables: Table[] = [];
const raw: Record<string, object[]> = {};
if (!only || only === 'minimalloc') await minimalloc();
if (!only || only === 'idealloc') await idealloc();
if (!only || only === 'smartpool') await smartpool();
if (!only || only === 'steps') steps();
keepResults(only ? `plan-offsets-${only}` : 'plan-offsets', tables, raw);

async function minimalloc(): Promise<void> {
  const rows: (string | number)[][] = [];
  const results: object[] = [];
  let total = 0;
  for (const [name, published] of Object.entries(MINIMALLOC_MS)) {
    const text = readShared(`bench/minimalloc/${name}.${CAPACITY}.csv`);
    if (!text) return;
    const buffers = readBufferCsv(text);
    const plan = await planOffsetsInWorkers(buffers, { capacity: CAPACITY, budgetMs: 20_000 });
    total += plan.wallMs;
    // C and D have room below the capacity: how far down do a few more seconds get?
    const lowest = name === 'C' || name === 'D' ? await planOffsetsInWorkers(buffers, { budgetMs: 10_000 }) : undefined;
    rows.push([
      name,
      buffers.length,
      plan.lowerBound,
      plan.footprint <= CAPACITY ? 'yes' : 'NO',
      Math.round(plan.wallMs),
      published,
      (plan.wallMs / published).toFixed(3),
      lowest ? `${lowest.footprint} (${lowest.ratio.toFixed(4)}, ${Math.round(lowest.wallMs)} ms)` : '',
    ]);
    results.push({
      name,
      footprint: plan.footprint,
      lowerBound: plan.lowerBound,
      wallMs: plan.wallMs,
      published,
      lowest: lowest?.footprint,
      lowestMs: lowest?.wallMs,
    });
  }
  rows.push(['all', '', '', '', Math.round(total), '', '', '']);
  tables.push({
    title: `minimalloc, capacity ${CAPACITY}`,
    columns: ['instance', 'buffers', 'lower bound', 'solved', 'ms', 'minimalloc ms (published)', 'ms / published', 'smallest found'],
    rows,
  });
  raw['minimalloc'] = results;
}

async function idealloc(): Promise<void> {
  const rows: (string | number)[][] = [];
  const results: object[] = [];
  for (const [name, target] of IDEALLOC) {
    const text = readShared(`bench/idealloc/${name}.csv.gz`);
    if (!text) return;
    const buffers = readBufferCsv(text);
    const plan = await planOffsetsInWorkers(buffers, { budgetMs: 4500 });
    rows.push([name, buffers.length, plan.lowerBound, plan.footprint, plan.ratio.toFixed(5), target, Math.round(plan.wallMs), plan.by]);
    results.push({ name, footprint: plan.footprint, lowerBound: plan.lowerBound, ratio: plan.ratio, wallMs: plan.wallMs, by: plan.by });
  }
  tables.push({ title: 'idealloc', columns: ['instance', 'buffers', 'lower bound', 'footprint', 'ratio', 'target', 'ms', 'by'], rows });
  raw['idealloc'] = results;
}

async function smartpool(): Promise<void> {
  const rows: (string | number)[][] = [];
  const results: object[] = [];
  for (const [file, name, target, published, cnmem] of SMARTPOOL) {
    const text = readShared(`bench/smartpool/memInfo_${file}_20itr_100size.text.gz`);
    if (!text) return;
    const ops = readMallocText(text);
    const found = findStep(ops);
    if (!found.periodic) throw new Error(`${name}: ${found.reason}`);
    const plan = await planOffsetsInWorkers(buffersOfStep(found.step, 1), { budgetMs: 8000 });
    const faults = verifyStepPlan({ step: found.step, layout: plan, lowerBound: plan.lowerBound });
    if (faults.length > 0) throw new Error(faults[0]!.message);
    const total = plan.footprint + found.step.wholeRunBytes;
    rows.push([
      name,
      found.step.period,
      found.peak,
      (total / found.peak).toFixed(5),
      target,
      (found.smartPoolTotal / found.peak).toFixed(4),
      published,
      cnmem,
      plan.ratio.toFixed(5),
      Math.round(plan.wallMs),
    ]);
    results.push({
      name,
      total,
      peak: found.peak,
      smartPoolTotal: found.smartPoolTotal,
      pooledRatio: plan.ratio,
      wallMs: plan.wallMs,
      optimal: plan.optimal,
    });
  }
  tables.push({
    title: 'SmartPool traces, total over peak',
    columns: [
      'trace',
      'period',
      'peak',
      'weir',
      'target',
      'smartpool (ours)',
      'SmartPool (its algorithm)',
      'CnMem (published)',
      'weir, pooled part',
      'ms',
    ],
    rows,
  });
  raw['smartpool'] = results;
}

/** Traces of AutoSwap's rewrite: two repeat a step, the third is a dynamic network in which no step must be found. */
function steps(): void {
  const rows: (string | number)[][] = [];
  const results: object[] = [];
  for (const [name, expected] of [
    ['vggswap', '640'],
    ['unetswap', '522'],
    ['resnetswap', 'none'],
  ] as const) {
    const text = readShared(`bench/autoswap/${name}.gz`);
    if (!text) return;
    const started = performance.now();
    const ops = opsOfEvents(text);
    const found = findStep(ops);
    const ms = performance.now() - started;
    rows.push([
      name,
      ops.count,
      expected,
      found.periodic ? found.period.length : 'none',
      found.periodic ? '' : found.reason,
      Math.round(ms),
    ]);
    results.push({ name, expected, found: found.periodic ? found.period.length : undefined, ms });
  }
  tables.push({ title: 'Steps found', columns: ['trace', 'operations', 'period, known', 'period, found', 'why none', 'ms'], rows });
  raw['steps'] = results;
}

/** Lines are `op,ptr,size,ns`; op is 1 for malloc, -1 for free. Reads and writes are skipped. */
function opsOfEvents(text: string): MemoryOps {
  const lines = text.trim().split('\n');
  const ops = new OpsBuilder(lines.length);
  const open = new Map<string, { op: number; size: number }>();
  for (const line of lines) {
    const [kind, pointer, bytes] = line.split(',') as [string, string, string];
    const size = Number(bytes);
    if (kind === '1') open.set(pointer, { op: ops.alloc(size, 0), size });
    const block = kind === '-1' ? open.get(pointer) : undefined;
    if (!block) continue;
    ops.free(block.op, block.size, 0);
    open.delete(pointer);
  }
  return ops.finish(0);
}
