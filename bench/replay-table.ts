// `npm run bench:replay`: memory, modelled driver time and driver calls of every allocator on every recorded training run.
// Writes bench/results/replay-<date>.json and .md, with the targets that are met and missed.
import { mkdirSync, writeFileSync } from 'node:fs';
import type { Allocator, AllocatorContext } from '../src/allocator/allocator.ts';
import { createGmlake, createWeir } from '../src/allocator/engine/allocator.ts';
import { PyTorchAllocator } from '../src/allocator/pytorch/allocator.ts';
import { DEFAULT_SETTINGS } from '../src/allocator/pytorch/settings.ts';
import { SimulatedBackend } from '../src/backend/simulated.ts';
import { MIB } from '../src/base/bytes.ts';
import { replay } from '../src/replay/replay.ts';
import { summarizeTrace } from '../src/trace/summary.ts';
import { provenanceOf, thisMachine } from './provenance.ts';
import { type NamedTrace, type Operations, smartPoolTraces, trainingTraces } from './traces.ts';

type Create = (context: AllocatorContext) => Allocator;

const ALLOCATORS: Readonly<Record<string, Create>> = {
  pytorch: (context) => new PyTorchAllocator(context, DEFAULT_SETTINGS),
  expandable: (context) => new PyTorchAllocator(context, { ...DEFAULT_SETTINGS, expandableSegments: true }),
  'gmlake 2 MiB': (context) => createGmlake(context, { minStitch: 2 * MIB }),
  'gmlake 128 MiB': (context) => createGmlake(context, { minStitch: 128 * MIB }),
  'gmlake 512 MiB': (context) => createGmlake(context, { minStitch: 512 * MIB }),
  weir: (context) => createWeir(context),
};

interface Row {
  readonly trace: string;
  readonly allocator: string;
  readonly peakLive: number;
  readonly peakReserved: number;
  readonly ratio: number;
  readonly driverMs: number;
  readonly steadyMs: number;
  /** `steadyMs` in percent of the real duration of the last third of the events; null if the recording has no usable clock. */
  readonly steadyPercent: number | null;
  readonly calls: number;
  /** Time that the replay took on this machine. */
  readonly wallMs: number;
}

function trainingRow({ name, trace }: NamedTrace, allocator: string): Row {
  const { peakLive } = summarizeTrace(trace);
  const began = performance.now();
  const result = replay(trace, ALLOCATORS[allocator]!, { backend: new SimulatedBackend() });
  const wallMs = performance.now() - began;
  result.allocator.check();
  const { timeUs, count } = trace.events;
  const lastThirdUs = timeUs[count - 1]! - timeUs[Math.floor((count * 2) / 3)]!;
  return {
    trace: name,
    allocator,
    peakLive,
    peakReserved: result.peakReserved,
    ratio: result.peakReserved / peakLive,
    driverMs: result.driver.timeUs / 1e3,
    steadyMs: result.driver.steadyTimeUs / 1e3,
    steadyPercent: (100 * result.driver.steadyTimeUs) / lastThirdUs,
    calls: Object.values(result.driver.calls).reduce((sum, calls) => sum + calls, 0),
    wallMs,
  };
}

function operationsRow(operations: Operations, name: string): Row {
  const backend = new SimulatedBackend();
  const allocator = ALLOCATORS[name]!({ backend, streams: [0] });
  const blocks = new Int32Array(operations.slots).fill(-1);
  const began = performance.now();
  let peakReserved = 0;
  let steadyFromUs = 0;
  for (let index = 0; index < operations.slot.length; index++) {
    if (index === Math.floor((operations.slot.length * 2) / 3)) steadyFromUs = backend.ledger.timeUs;
    const slot = operations.slot[index]!;
    const bytes = operations.bytes[index]!;
    if (bytes > 0) {
      blocks[slot] = allocator.malloc(bytes, 0, 0);
      peakReserved = Math.max(peakReserved, allocator.reservedBytes);
    } else {
      allocator.free(blocks[slot]!);
      allocator.complete(blocks[slot]!);
    }
  }
  const wallMs = performance.now() - began;
  allocator.check();
  return {
    trace: operations.name,
    allocator: name,
    peakLive: operations.peakLive,
    peakReserved,
    ratio: peakReserved / operations.peakLive,
    driverMs: backend.ledger.timeUs / 1e3,
    steadyMs: (backend.ledger.timeUs - steadyFromUs) / 1e3,
    steadyPercent: null,
    calls: Object.values(backend.ledger.calls).reduce((sum, calls) => sum + calls, 0),
    wallMs,
  };
}

const geometricMean = (values: readonly number[]) => Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / values.length);
const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);

function table(rows: readonly Row[]): string {
  const names = Object.keys(ALLOCATORS);
  const traces = [...new Set(rows.map((row) => row.trace))];
  const lines = [`| trace | ${names.join(' | ')} |`, `|---|${names.map(() => '---').join('|')}|`];
  for (const trace of traces) {
    const cells = names.map((name) => {
      const row = rows.find((candidate) => candidate.trace === trace && candidate.allocator === name)!;
      const steady = row.steadyPercent === null ? '' : ` / ${row.steadyPercent.toFixed(2)} %`;
      return `${row.ratio.toFixed(4)} / ${row.driverMs.toFixed(1)} / ${row.steadyMs.toFixed(1)}${steady} / ${row.calls}`;
    });
    lines.push(`| ${trace} | ${cells.join(' | ')} |`);
  }
  const totals = names.map((name) => {
    const own = rows.filter((row) => row.allocator === name);
    const worst = Math.max(...own.map((row) => row.ratio));
    return `**${geometricMean(own.map((row) => row.ratio)).toFixed(4)}** (worst ${worst.toFixed(4)}) / ${sum(own.map((row) => row.driverMs)).toFixed(0)} / ${sum(own.map((row) => row.steadyMs)).toFixed(1)} / ${sum(own.map((row) => row.calls))}`;
  });
  lines.push(`| geometric mean, sums | ${totals.join(' | ')} |`);
  return lines.join('\n');
}

interface Target {
  readonly name: string;
  readonly limit: number;
  readonly measured: number;
}

function targets(training: readonly Row[], small: readonly Row[]): Target[] {
  const weir = training.filter((row) => row.allocator === 'weir');
  const ratios = weir.map((row) => row.ratio);
  const driver = (name: string) => sum(training.filter((row) => row.allocator === name).map((row) => row.driverMs));
  const native = (trace: string) => small.find((row) => row.trace === trace && row.allocator === 'pytorch')!.ratio;
  return [
    { name: 'weir, worst ratio', limit: 1.03, measured: Math.max(...ratios) },
    { name: 'weir, geometric mean of ratios', limit: 1.01, measured: geometricMean(ratios) },
    { name: 'driver time, weir over expandable', limit: 2, measured: driver('weir') / driver('expandable') },
    { name: 'weir, worst steady %', limit: 0.75, measured: Math.max(...weir.map((row) => row.steadyPercent ?? 0)) },
    {
      name: 'small pools, weir over native',
      limit: 1.02,
      measured: Math.max(...small.filter((row) => row.allocator === 'weir').map((row) => row.ratio / native(row.trace))),
    },
  ];
}

const names = Object.keys(ALLOCATORS);
const training: Row[] = [];
for (const named of trainingTraces()) {
  for (const allocator of names) training.push(trainingRow(named, allocator));
  console.error(`${named.name} done`);
}
const small = smartPoolTraces().flatMap((operations) => names.map((allocator) => operationsRow(operations, allocator)));

const source = provenanceOf('npm run bench:replay', `modelled driver, H200 costs (${thisMachine()})`);
const { date } = source;
const checks = targets(training, small);
const report = [
  `# Replay of recorded training runs, ${date}`,
  '',
  `\`${source.command}\`, commit ${source.commit}, ${thisMachine()}. Driver time is modelled (H200 costs, src/backend/costs.ts).`,
  'Cells: peak reserved over peak live / driver ms / of which in the last third of the events, and as a share of its real duration / driver calls.',
  '',
  table(training),
  '',
  '## Small pools (SmartPool logs; no usable clock)',
  '',
  table(small),
  '',
  '## Targets',
  '',
  '| target | limit | measured | |',
  '|---|---|---|---|',
  ...checks.map(
    ({ name, limit, measured }) => `| ${name} | ${limit} | ${measured.toFixed(4)} | ${measured <= limit ? 'met' : '**missed**'} |`,
  ),
  '',
].join('\n');
mkdirSync('bench/results', { recursive: true });
writeFileSync(
  `bench/results/replay-${date}.json`,
  `${JSON.stringify({ schema: 1, ...source, training, small, targets: checks }, null, 2)}\n`,
);
writeFileSync(`bench/results/replay-${date}.md`, report);
console.log(report);
