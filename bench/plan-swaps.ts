// `npm run bench:plan`, second part: swap plans for AutoSwap's VGG trace with its cost model, and for steps recorded on an H200.
// The planner throws if the verifier refuses a plan or five simulated steps have a stall.
import { readAccessJson } from '../src/plan/files/access-inputs.ts';
import { readAutoSwapText } from '../src/plan/files/autoswap-trace.ts';
import { planOffsets } from '../src/plan/offsets/planner.ts';
import { planSmartPool } from '../src/plan/steps/smartpool.ts';
import { type SwapStep, swapStepOf } from '../src/plan/swaps/accesses.ts';
import { AUTOSWAP_COPIES, type CopyCosts, H200_COPIES } from '../src/plan/swaps/copy-costs.ts';
import { loadCurve } from '../src/plan/swaps/gaps.ts';
import { gappedBuffers, planSwapStep } from '../src/plan/swaps/planner.ts';
import { AUTOSWAP_SCORES, AutoSwap } from '../src/plan/swaps/published/autoswap.ts';
import { keepResults, readShared, type Table } from './plan-support.ts';

const MIB = 2 ** 20;
/** The load curve of the AutoSwap study. It counts blocks that are missing in the trace. */
const STUDY_PEAK = 679_197_000;
const STUDY_EVENTS = 3172;
const RECORDED = ['vgg16-b100', 'resnet50-b100', 'opt1b3-R', 'bert-wavelet'];
const PAPER_REDUCTION = 0.342;
const budgetMs = Number(process.argv[2] ?? 4000);

const tables: Table[] = [];
const raw: Record<string, object | object[]> = {};
study();
recorded();
keepResults('plan-swaps', tables, raw);

function study(): void {
  const text = readShared('bench/autoswap/vec_block_fresh_vgg.csv.gz');
  if (!text) return;
  const step = swapStepOf(readAutoSwapText(text, STUDY_EVENTS, STUDY_PEAK), 1);
  const published = new AutoSwap(step, AUTOSWAP_COPIES);
  const limits = [280, 320, 350, 380, 400, 420, 430, 440, 450, 490];
  const scores = [...AUTOSWAP_SCORES, 'weighted'] as const;
  tables.push({
    title: 'AutoSwap on its own VGG trace: overhead in % by limit in MiB',
    columns: ['score', ...limits.map(String)],
    rows: scores.map((score) => [score, ...limits.map((limit) => (published.at(limit * MIB, score).overhead * 100).toFixed(2))]),
  });
  const plan = planSwapStep(step, { costs: AUTOSWAP_COPIES, budgetMs, alignment: 1 });
  const zero = published.zeroOverheadLimit(10 * MIB);
  tables.push({
    title: 'The same trace and cost model: lowest limit without overhead, MiB',
    columns: [
      'peak',
      'AutoSwap (published)',
      'autoswap (ours)',
      'weir',
      'reduction',
      'bandwidth bound',
      'moved per step',
      'stall in simulator, us',
      'footprint with offsets',
    ],
    rows: [
      [
        mib(plan.peak),
        450,
        mib(zero),
        mib(plan.zeroStallLimit),
        percent(plan.reduction),
        mib(plan.bounds.bandwidth),
        mib(plan.bytesMoved),
        plan.simulation.stallUs,
        mib(plan.footprint),
      ],
    ],
  });
  raw['study'] = {
    peak: plan.peak,
    autoswap: zero,
    zeroStallLimit: plan.zeroStallLimit,
    bounds: plan.bounds,
    bytesMoved: plan.bytesMoved,
    footprint: plan.footprint,
    curve: plan.curve,
  };
}

function recorded(): void {
  const rows: (string | number)[][] = [];
  const curves: (string | number)[][] = [];
  const results: object[] = [];
  for (const name of RECORDED) {
    const text = readShared(`traces/access/${name}.access.json.gz`);
    if (!text) return;
    const step = swapStepOf(readAccessJson(text), 1);
    const plan = planSwapStep(step, { costs: H200_COPIES, budgetMs });
    const { peak } = loadCurve(step);
    const smartPool = smartPoolOf(step);
    const unswapped = planOffsets(gappedBuffers(step, [], plan.turns, 512), { budgetMs: 2000 }).footprint + step.untouchedBytes;
    const autoSwap = autoSwapLimit(step, H200_COPIES);
    const possible = 1 - plan.bounds.bandwidth / peak;
    rows.push([
      name,
      mib(peak),
      mib(smartPool),
      mib(unswapped),
      mib(autoSwap),
      mib(plan.zeroStallLimit),
      percent(plan.reduction),
      percent(possible),
      possible < PAPER_REDUCTION ? 'out of reach' : plan.reduction >= PAPER_REDUCTION ? 'yes' : 'NO',
      mib(plan.footprint),
      mib(plan.bytesMoved),
      Math.round(plan.wallMs),
    ]);
    for (const point of plan.curve) curves.push([name, mib(point.limit), percent(point.overhead)]);
    results.push({
      name,
      peak,
      smartPool,
      unswapped,
      autoSwap,
      zeroStallLimit: plan.zeroStallLimit,
      bounds: plan.bounds,
      footprint: plan.footprint,
      bytesMoved: plan.bytesMoved,
      curve: plan.curve,
      wallMs: plan.wallMs,
    });
  }
  tables.push({
    title: 'Recorded on an H200, MiB; 55 GB/s one way, 50.8 each way when both run',
    columns: [
      'step',
      'peak',
      'SmartPool',
      'weir offsets',
      'autoswap, no stall',
      'weir, no stall',
      'reduction',
      'bandwidth allows',
      '>= 34.2 %',
      'weir, offsets with gaps',
      'moved per step',
      'ms',
    ],
    rows,
  });
  tables.push({ title: 'Limit against overhead', columns: ['step', 'limit, MiB', 'slower by'], rows: curves });
  raw['recorded'] = results;
}

function autoSwapLimit(step: SwapStep, costs: CopyCosts): number {
  const published = new AutoSwap(step, costs);
  return published.zeroOverheadLimit(Math.ceil(published.peak / 100));
}

/** Footprint of the same step by SmartPool's algorithm, which takes blocks in order of birth and death. */
function smartPoolOf(step: SwapStep): number {
  const moving = step.blocks.filter((block) => !block.wholeRun);
  const staying = step.blocks.filter((block) => block.wholeRun).reduce((sum, block) => sum + block.size, step.untouchedBytes);
  const blocks = moving.map((block) => ({ birth: block.fromUs, death: block.toUs, size: block.size, stream: 0 }));
  return planSmartPool({ period: step.periodUs, start: 0, blocks, turns: 1, wholeRunBytes: staying, wholeRunBlocks: 0 }).total;
}

function mib(bytes: number): string {
  return (bytes / MIB).toFixed(1);
}

function percent(share: number): string {
  return `${(share * 100).toFixed(2)} %`;
}
