// `npm run bench:lending`: memory that lending between streams saves, and its cost in events, waits and driver time.
// Writes bench/results/lending-<date>.json and .md.
import { mkdirSync, writeFileSync } from 'node:fs';
import { type EngineSettings, LENDING_RULES } from '../src/abi/settings.ts';
import { createWeir, type EngineAllocator } from '../src/allocator/engine/allocator.ts';
import { SimulatedBackend } from '../src/backend/simulated.ts';
import { Timeline, type TimelineTotals } from '../src/backend/timeline.ts';
import { MIB } from '../src/base/bytes.ts';
import { replay } from '../src/replay/replay.ts';
import { summarizeTrace } from '../src/trace/summary.ts';
import type { Trace } from '../src/trace/trace.ts';
import { provenanceOf } from './provenance.ts';
import { trainingTraces } from './traces.ts';

const STEPS = 20;
const LAYERS = 24;
const LAGS_US = [1000, 5000, 50_000];

interface Row {
  readonly workload: string;
  readonly lending: string;
  readonly lagUs: number | 'step';
  readonly peakLive: number;
  readonly peakReserved: number;
  readonly ratio: number;
  readonly driverMs: number;
  readonly steadyMs: number;
  readonly borrowsPerStep: number;
  readonly waitsPerStep: number;
  readonly streams: TimelineTotals;
}

function rowOf(
  workload: string,
  lending: string,
  lagUs: number | 'step',
  steps: number,
  peaks: { live: number; reserved: number },
  driver: { timeUs: number; steadyTimeUs: number },
  allocator: EngineAllocator,
  streams: TimelineTotals,
): Row {
  const { borrows, waits } = allocator.statistics;
  return {
    workload,
    lending,
    lagUs,
    peakLive: peaks.live,
    peakReserved: peaks.reserved,
    ratio: peaks.reserved / peaks.live,
    driverMs: driver.timeUs / 1e3,
    steadyMs: driver.steadyTimeUs / 1e3,
    borrowsPerStep: borrows / steps,
    waitsPerStep: waits / steps,
    streams,
  };
}

/**
 * The case that Wavelet describes: two trainings on two streams, the forward pass of one beside the backward pass of the other.
 * The activations of each nearly fill the memory, but at different times.
 */
function tickTock(lending: keyof typeof LENDING_RULES, lagUs: number): Row {
  const backend = new SimulatedBackend();
  const timeline = new Timeline({ lagUs });
  const allocator = createWeir({ backend, streams: [0, 1], events: timeline }, LENDING_RULES[lending]);
  const held: number[][] = [[], []];
  let timeUs = 0;
  let live = 0;
  let peakLive = 0;
  let peakReserved = 0;
  let steadyFromUs = 0;
  const sizes = Array.from({ length: LAYERS }, (_, layer) => (320 + ((layer * 227) % 448)) * MIB);
  const take = (stream: number, bytes: number): number => {
    timeUs += 150;
    timeline.advanceTo(timeUs);
    const block = allocator.malloc(bytes, stream, 0);
    live += allocator.sizeOf(block);
    peakLive = Math.max(peakLive, live);
    peakReserved = Math.max(peakReserved, allocator.reservedBytes);
    return block;
  };
  const drop = (block: number): void => {
    live -= allocator.sizeOf(block);
    allocator.free(block);
    allocator.complete(block);
  };
  for (let step = 0; step < STEPS; step++) {
    if (step === Math.floor((STEPS * 2) / 3)) steadyFromUs = backend.ledger.timeUs;
    const forward = step % 2;
    const backward = 1 - forward;
    for (let layer = 0; layer < LAYERS; layer++) {
      // The backward pass lets go of a layer before the forward pass of the other takes one.
      const ending = held[backward]!.pop();
      const gradient = take(backward, 24 * MIB);
      if (ending !== undefined) drop(ending);
      drop(gradient);
      held[forward]!.push(take(forward, sizes[layer]!));
    }
  }
  allocator.check();
  const driver = { timeUs: backend.ledger.timeUs, steadyTimeUs: backend.ledger.timeUs - steadyFromUs };
  return rowOf(
    'tick-tock (generated)',
    lending,
    lagUs,
    STEPS,
    { live: peakLive, reserved: peakReserved },
    driver,
    allocator,
    timeline.totals(),
  );
}

/** Steps of the recorded run: two trainings of twelve steps each. */
const BERT_STEPS = 24;

/** A pause of the program longer than this ends a step. The GPU takes GPU_PACE times as long for a step as the program. */
const STEP_GAP_US = 100_000;
const GPU_PACE = 3.77;
/** In the first steps the program loads kernels, and the GPU waits for it. */
const FIRST_STEPS = 3;
const FIRST_LAG_US = 300;

/** The recorded run waited for the GPU after each step, so the lag grows from 0 during a step. */
function lagWithin({ events }: Trace): (stream: number, nowUs: number) => number {
  const starts = [events.timeUs[0]!];
  for (let event = 1; event < events.count; event++)
    if (events.timeUs[event]! - events.timeUs[event - 1]! > STEP_GAP_US) starts.push(events.timeUs[event]!);
  return (_, nowUs) => {
    const step = starts.findLastIndex((start) => start <= nowUs);
    return step < FIRST_STEPS ? FIRST_LAG_US : (GPU_PACE - 1) * (nowUs - starts[step]!);
  };
}

function recorded(settings: Partial<EngineSettings>, lending: string, lagUs: number | 'step'): Row[] {
  return trainingTraces()
    .filter(({ name }) => name === 'bert-wavelet')
    .map(({ name, trace }) => {
      const timeline = new Timeline({ lagUs: lagUs === 'step' ? lagWithin(trace) : lagUs });
      const result = replay(trace, (context) => createWeir(context, settings), { backend: new SimulatedBackend(), timeline });
      result.allocator.check();
      const peaks = { live: summarizeTrace(trace).peakLive, reserved: result.peakReserved };
      return rowOf(name, lending, lagUs, BERT_STEPS, peaks, result.driver, result.allocator as EngineAllocator, result.streams);
    });
}

const rows: Row[] = [];
for (const lending of ['off', 'glake', 'weir'] as const) {
  for (const lagUs of lending === 'off' ? LAGS_US.slice(0, 1) : LAGS_US) {
    rows.push(tickTock(lending, lagUs), ...recorded(LENDING_RULES[lending], lending, lagUs));
  }
  if (lending !== 'off') rows.push(...recorded(LENDING_RULES[lending], lending, 'step'));
}
rows.sort((left, right) => left.workload.localeCompare(right.workload));

function lagCell({ lending, lagUs }: Row): string {
  if (lending === 'off') return '';
  return lagUs === 'step' ? 'grows in each step' : String(lagUs / 1e3);
}

const source = provenanceOf('npm run bench:lending', 'modelled driver, H200 costs');
const { date } = source;
const report = [
  `# Lending between streams, ${date}`,
  '',
  '`npm run bench:lending`. Driver time is modelled (H200 costs); streams are behind the program by the lag (src/backend/timeline.ts).',
  'Needed: waits for what was not over when they were made. Stall: time a stream stood still for them, beyond what it was behind anyway.',
  '',
  '| workload | lending | lag ms | reserved / live | driver ms | last third ms | borrowings / step | waits / step | needed | stall ms | events |',
  '|---|---|---|---|---|---|---|---|---|---|---|',
  ...rows.map(
    (row) =>
      `| ${row.workload} | ${row.lending} | ${lagCell(row)} | ${row.ratio.toFixed(4)} | ${row.driverMs.toFixed(1)} | ${row.steadyMs.toFixed(2)} | ${row.borrowsPerStep.toFixed(1)} | ${row.waitsPerStep.toFixed(2)} | ${row.streams.neededWaits} | ${(row.streams.stallUs / 1e3).toFixed(1)} | ${row.streams.events} |`,
  ),
  '',
].join('\n');
mkdirSync('bench/results', { recursive: true });
writeFileSync(`bench/results/lending-${date}.json`, `${JSON.stringify({ schema: 1, ...source, rows }, null, 2)}\n`);
writeFileSync(`bench/results/lending-${date}.md`, report);
console.log(report);
