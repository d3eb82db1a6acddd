// `npm run bench:planned`: recorded trainings on the engine, with and without a plan of their step.
// Writes bench/results/planned-<date>.json and .md.
import { mkdirSync, writeFileSync } from 'node:fs';
import { createWeir, type EngineAllocator } from '../src/allocator/engine/allocator.ts';
import { SimulatedDevice } from '../src/device/simulated.ts';
import { opsOfTrace } from '../src/plan/memory-ops.ts';
import { findStep, planStep } from '../src/plan/step-plan.ts';
import { EventKind } from '../src/trace/trace.ts';
import { trainingTraces } from './traces.ts';

const GIB = 2 ** 30;
for (const { name, trace } of trainingTraces()) {
  if (process.argv[2] && !name.includes(process.argv[2])) continue;
  const ops = opsOfTrace(trace);
  const found = findStep(ops);
  if (!found.periodic) {
    console.log(name, found.reason);
    continue;
  }
  const plan = planStep(found.step, { budgetMs: 1500 });
  const streams = new Set(plan.step.blocks.map((block) => block.stream));
  console.log(name, 'peak', (ops.peak / GIB).toFixed(3), 'footprint', (plan.layout.footprint / GIB).toFixed(3), 'lb', (plan.lowerBound / GIB).toFixed(3), 'whole', (plan.step.wholeRunBytes / GIB).toFixed(3), 'blocks', plan.step.blocks.length, 'turns', plan.step.turns, 'streams', [...streams].join(), 'steps', Math.round(ops.count / plan.step.period));
  for (const planned of [false, true]) {
    const device = new SimulatedDevice();
    const allocator: EngineAllocator = createWeir({ device, streams: [0] });
    if (planned) {
      const id = allocator.installPlan({ requests: plan.step.blocks, turns: plan.step.turns, offsets: plan.layout.offsets, footprint: plan.layout.footprint });
      if (id === 0) console.log('refused');
    }
    const blocks = new Int32Array(ops.count).fill(-1);
    let at = 0;
    // What was live before the recording.
    const before: number[] = [];
    for (let index = 0; index < trace.allocations.liveAtStart; index++) before.push(allocator.malloc(trace.allocations.requested[index]!, trace.allocations.stream[index]!, 0));
    const byAllocation = new Map<number, number>();
    before.forEach((block, index) => byAllocation.set(index, block));
    let live = 0, peak = 0, peakReserved = 0, op = 0, calls = 0;
    let stepPeakReserved = 0, stepPeakLive = 0;
    const callsOf = () => 0;
    let last = JSON.stringify(device.ledger);
    const lines: string[] = [];
    const endStep = () => {
      const s = allocator.statistics, p = allocator.planStatistics;
      lines.push(`  step ${lines.length} reserved ${(stepPeakReserved / GIB).toFixed(4)} ratio ${(stepPeakReserved / ops.peak).toFixed(4)} end ${(allocator.reservedBytes / ops.peak).toFixed(4)} hits ${p.hits} miss ${p.misses} occ ${p.occupied} arena ${(p.arenaBytes / GIB).toFixed(3)} active ${p.active} growths ${s.growths} stitches ${s.stitches + s.extensions} ${Object.entries(device.ledger.calls).filter(([, n]) => n > 0).map(([k, n]) => k + n).join(' ')}`);
      stepPeakReserved = 0;
    };
    for (let event = 0; event < trace.events.count; event++) {
      const kind = trace.events.kind[event]!;
      const allocation = trace.allocationOf[event]!;
      if (allocation < 0) continue;
      if (kind === EventKind.Alloc) {
        byAllocation.set(allocation, allocator.malloc(trace.events.size[event]!, trace.events.stream[event]!, trace.events.pool[event]!));
        op++;
      } else if (kind === EventKind.FreeCompleted) {
        const block = byAllocation.get(allocation);
        if (block !== undefined) {
          allocator.free(block);
          allocator.complete(block);
          byAllocation.delete(allocation);
        }
        op++;
      } else continue;
      stepPeakReserved = Math.max(stepPeakReserved, allocator.reservedBytes);
      if (op % plan.step.period === plan.step.start % plan.step.period) endStep();
    }
    allocator.check();
    if (planned && process.argv[3]) for (const r of allocator.snapshot()) if (r.state !== 'planned' && r.state !== 'unbacked' && r.size>=2**20) console.log(r.state, (r.address%2**40/2**20).toFixed(2), (r.size/2**20).toFixed(2), r.stream, r.small);
    console.log(planned ? 'planned' : 'weir');
    console.log(lines.join('\n'));
    void at; void blocks; void live; void peak; void peakReserved; void calls; void stepPeakLive; void callsOf; void last; void mkdirSync; void writeFileSync;
  }
}
