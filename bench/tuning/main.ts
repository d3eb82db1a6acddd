// `npm run bench:tuning -- [FOLDER...] [--settings NAME:VALUE,...]... [--only REGEX] [--think] [--once]`: judges settings of weir.
// Single runs are chaotic, so each trace is replayed at four sizes. Held-out traces are listed apart.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { Statistic } from '../../src/abi/engine.ts';
import { ENGINE_SETTINGS, type EngineSettings } from '../../src/abi/settings.ts';
import { createWeir, type EngineAllocator } from '../../src/allocator/engine/allocator.ts';
import { instantiateEngine } from '../../src/allocator/engine/load.ts';
import { WEIR_SETTINGS } from '../../src/allocator/engine/settings.ts';
import { PyTorchAllocator } from '../../src/allocator/pytorch/allocator.ts';
import { DEFAULT_SETTINGS } from '../../src/allocator/pytorch/settings.ts';
import { SimulatedBackend } from '../../src/backend/simulated.ts';
import { GIB, MIB } from '../../src/base/bytes.ts';
import { replay } from '../../src/replay/replay.ts';
import { summarizeTrace } from '../../src/trace/summary.ts';
import type { Operations } from '../traces.ts';
import { peakLive, type Subject, subjects } from './corpus.ts';

/** Factors of requests above 1 MiB. */
const SCALES = [1, 1.004, 1.01, 0.995];
const LARGE = MIB;
/** Settings whose default was another in 0.1.0. */
const OLD: Partial<EngineSettings> = { smallLimit: MIB, eventBytes: 256 * MIB, sharedGrowthShare: 192, waitShare: 1900, groupLives: 0 };
const EXPANDABLE = 'expandable';
const CACHE = 'build/tuning';
const EVENT_BYTES = 16;
const SMALL_POOL = 2 * GIB;

interface Outcome {
  readonly ratio: number;
  readonly driverMs: number;
  readonly steadyMs: number;
  readonly waits: number;
  readonly peakLive: number;
}

const { values: options, positionals: folders } = parseArgs({
  allowPositionals: true,
  options: {
    settings: { type: 'string', multiple: true, default: [] },
    only: { type: 'string', default: '' },
    once: { type: 'boolean', default: false },
    old: { type: 'boolean', default: false },
    think: { type: 'boolean', default: false },
  },
});
for (const folder of folders) {
  if (existsSync(folder)) continue;
  process.stderr.write(`bench:tuning: there is no folder ${folder}\n`);
  process.exit(2);
}
const scales = options.once ? SCALES.slice(0, 1) : SCALES;

function parseSettings(text: string): Partial<EngineSettings> {
  const pairs = text
    .split(',')
    .filter(Boolean)
    .map((pair) => pair.split(':'));
  for (const [name] of pairs) if (!ENGINE_SETTINGS.includes(name as keyof EngineSettings)) throw new Error(`no setting ${name}`);
  return Object.fromEntries(pairs.map(([name, value]) => [name, Number(value)]));
}

const CANDIDATES: Readonly<Record<string, Partial<EngineSettings>>> = {
  ...(options.old || options.settings.length === 0 ? { '0.1.0': OLD } : {}),
  ...(options.settings.length === 0
    ? { weir: {} }
    : Object.fromEntries(options.settings.map((text) => [text || 'weir', parseSettings(text)]))),
};

function scaled(bytes: Float64Array, scale: number): Float64Array {
  return scale === 1 ? bytes : bytes.map((size) => (size > LARGE ? Math.round(size * scale) : size));
}

/** Both kinds of runs, at one scale. */
function run({ operations, trace }: Subject, scale: number, settings: Partial<EngineSettings> | undefined): Outcome {
  if (operations) return runOperations(operations, scaled(operations.bytes, scale), settings);
  const { events, allocations } = trace!;
  const resized = {
    ...trace!,
    events: { ...events, size: scaled(events.size, scale) },
    allocations: { ...allocations, requested: scaled(allocations.requested, scale) },
    startSegments: [],
  };
  const backend = new SimulatedBackend();
  const result = replay(
    resized,
    (context) =>
      settings ? createWeir(context, settings) : new PyTorchAllocator(context, { ...DEFAULT_SETTINGS, expandableSegments: true }),
    { backend },
  );
  const live = summarizeTrace(resized).peakLive;
  result.allocator.check();
  return {
    ratio: result.peakReserved / live,
    driverMs: result.driver.timeUs / 1e3,
    steadyMs: result.driver.steadyTimeUs / 1e3,
    waits: settings ? (result.allocator as EngineAllocator).statistics.waits : 0,
    peakLive: live,
  };
}

function runOperations({ slot, slots }: Operations, bytes: Float64Array, settings: Partial<EngineSettings> | undefined): Outcome {
  const backend = new SimulatedBackend();
  const live = peakLive(slot, bytes);
  const steadyFrom = Math.floor((slot.length * 2) / 3);
  if (!settings) return runExpandable(slot, bytes, slots, backend, live, steadyFrom);
  const engine = instantiateEngine(backend);
  const given: Partial<EngineSettings> = { ...WEIR_SETTINGS, ...settings, lend: 0, unmapFinished: 0 };
  for (const [index, name] of ENGINE_SETTINGS.entries()) engine.configureF64(index, given[name]!);
  const events = engine.buffer(slot.length * EVENT_BYTES);
  const places = engine.buffer(slots * 4);
  const view = new DataView(engine.memory.buffer);
  for (let index = 0; index < slots; index++) view.setUint32(places + index * 4, 0, true);
  for (let index = 0; index < slot.length; index++) {
    view.setUint32(events + index * EVENT_BYTES, slot[index]!, true);
    view.setUint32(events + index * EVENT_BYTES + 4, 0, true);
    view.setBigUint64(events + index * EVENT_BYTES + 8, BigInt(bytes[index]!), true);
  }
  engine.replay(events, steadyFrom, places, 0);
  const steadyUs = backend.ledger.timeUs;
  engine.replay(events + steadyFrom * EVENT_BYTES, slot.length - steadyFrom, places, 0);
  if (engine.check(3) !== 0) throw new Error('the engine broke a rule');
  return {
    ratio: engine.statisticF64(Statistic.peakReserved) / live,
    driverMs: backend.ledger.timeUs / 1e3,
    steadyMs: (backend.ledger.timeUs - steadyUs) / 1e3,
    waits: 0,
    peakLive: live,
  };
}

function runExpandable(
  slot: Uint32Array,
  bytes: Float64Array,
  slots: number,
  backend: SimulatedBackend,
  live: number,
  steadyFrom: number,
): Outcome {
  const allocator = new PyTorchAllocator({ backend, streams: [0] }, { ...DEFAULT_SETTINGS, expandableSegments: true });
  const blocks = new Int32Array(slots).fill(-1);
  let peak = 0;
  let steadyUs = 0;
  for (let index = 0; index < slot.length; index++) {
    if (index === steadyFrom) steadyUs = backend.ledger.timeUs;
    const place = slot[index]!;
    if (bytes[index]! > 0) {
      blocks[place] = allocator.malloc(bytes[index]!, 0, 0);
      peak = Math.max(peak, allocator.reservedBytes);
    } else {
      allocator.free(blocks[place]!);
      allocator.complete(blocks[place]!);
    }
  }
  const { timeUs } = backend.ledger;
  return { ratio: peak / live, driverMs: timeUs / 1e3, steadyMs: (timeUs - steadyUs) / 1e3, waits: 0, peakLive: live };
}

/** PyTorch's allocator does not change, so its outcomes are kept. */
function expandable(subject: Subject, scale: number): Outcome {
  const file = `${CACHE}/${subject.name}.${scale}.json`;
  if (existsSync(file)) return JSON.parse(readFileSync(file, 'utf8')) as Outcome;
  const outcome = run(subject, scale, undefined);
  mkdirSync(CACHE, { recursive: true });
  writeFileSync(file, JSON.stringify(outcome));
  return outcome;
}

const mean = (values: readonly number[]) => Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / values.length);
const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);

interface Row {
  readonly subject: Subject;
  readonly outcomes: Readonly<Record<string, readonly Outcome[]>>;
}

const rows: Row[] = [];
for (const subject of subjects(folders, new RegExp(options.only), !options.think)) {
  const began = performance.now();
  const outcomes: Record<string, Outcome[]> = { [EXPANDABLE]: scales.map((scale) => expandable(subject, scale)) };
  for (const [name, settings] of Object.entries(CANDIDATES)) outcomes[name] = scales.map((scale) => run(subject, scale, settings));
  rows.push({ subject, outcomes });
  if (process.env['WEIR_TUNING_TIMES']) console.error(`${subject.name}: ${((performance.now() - began) / 1e3).toFixed(1)} s`);
}

function cells({ outcomes }: Row): string[] {
  return Object.keys(CANDIDATES).map((name) => {
    const own = outcomes[name]!;
    const ratios = own.map(({ ratio }) => ratio);
    const driver = sum(own.map(({ driverMs }) => driverMs)) / sum(outcomes[EXPANDABLE]!.map(({ driverMs }) => driverMs));
    const waits = sum(own.map((outcome) => outcome.waits)) / own.length;
    const spread = own.length > 1 ? ` (${Math.min(...ratios).toFixed(4)}-${Math.max(...ratios).toFixed(4)})` : '';
    return `${mean(ratios).toFixed(4)}${spread} ${driver.toFixed(2)}x${waits > 0 ? ` ${waits.toFixed(0)}w` : ''}`;
  });
}

function totals(title: string, group: readonly Row[]): string {
  if (group.length === 0) return '';
  const of = (name: string) => group.map(({ outcomes }) => mean(outcomes[name]!.map(({ ratio }) => ratio)));
  const driver = (name: string) => sum(group.flatMap(({ outcomes }) => outcomes[name]!.map(({ driverMs }) => driverMs)));
  const texts = Object.keys(CANDIDATES).map(
    (name) =>
      `**${mean(of(name)).toFixed(4)}**, worst ${Math.max(...of(name)).toFixed(4)}, ${(driver(name) / driver(EXPANDABLE)).toFixed(2)}x`,
  );
  return `| **${title}** (${group.length}) | | ${mean(of(EXPANDABLE)).toFixed(4)} | ${texts.join(' | ')} |`;
}

/** Runs on several streams, with lending and without. Lending must not reserve more. */
function lendingTable(): string[] {
  const shared = rows.filter(({ subject }) => subject.trace && new Set(subject.trace.streams).size > 1);
  if (shared.length === 0) return [];
  const cell = (own: readonly Outcome[]) => own.map(({ ratio }) => ratio.toFixed(4)).join(' ');
  return [
    '\nSeveral streams: peak reserved / peak live of each scaled run.\n',
    '| trace | weir | without lending |',
    '|---|---|---|',
    ...shared.map(({ subject, outcomes }) => {
      const without = scales.map((scale) => run(subject, scale, { lend: 0 }));
      const lent = outcomes['weir'] ?? scales.map((scale) => run(subject, scale, {}));
      return `| ${subject.name} | ${cell(lent)} | ${cell(without)} |`;
    }),
  ];
}

const names = Object.keys(CANDIDATES);
console.log('Cells: peak reserved / peak live, geometric mean of the scaled runs (least-most); driver time over expandable; waits (w).\n');
console.log(`| trace | live GiB | expandable | ${names.join(' | ')} |`);
console.log(`|---|---|---|${names.map(() => '---').join('|')}|`);
for (const heldOut of [false, true]) {
  const group = rows.filter(({ subject }) => subject.heldOut === heldOut);
  for (const row of group) {
    const baseline = row.outcomes[EXPANDABLE]!;
    const live = (baseline[0]!.peakLive / GIB).toFixed(2);
    console.log(`| ${row.subject.name} | ${live} | ${mean(baseline.map(({ ratio }) => ratio)).toFixed(4)} | ${cells(row).join(' | ')} |`);
  }
  console.log(totals(heldOut ? 'held out' : 'think', group));
}
console.log(totals('all', rows));
console.log(
  totals(
    'pools below 2 GiB',
    rows.filter(({ outcomes }) => outcomes[EXPANDABLE]![0]!.peakLive < SMALL_POOL),
  ),
);
for (const line of lendingTable()) console.log(line);
