// `npm run bench`, second part: speed of the engine as WebAssembly and as C, against a C++ yardstick, by number of blocks.
// Writes bench/results/engine-<date>.json.
import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { compileProgram, compilerOf, hasCompiler, linkedWith } from '../scripts/native-rules.mjs';
import { instantiateEngine } from '../src/allocator/engine/load.ts';
import { SimulatedBackend } from '../src/backend/simulated.ts';
import { KIB, MIB } from '../src/base/bytes.ts';
import { EventKind, type Trace } from '../src/trace/trace.ts';
import { plotLogarithmic } from './plot.ts';
import { provenanceOf, thisMachine } from './provenance.ts';
import { trainingTraces } from './traces.ts';

/** Requests and frees of slots. An operation of 0 bytes is a free. */
interface Workload {
  readonly name: string;
  readonly slots: number;
  readonly slot: Uint32Array;
  readonly bytes: Float64Array;
  /** The first operations, which fill memory and are not measured. */
  readonly warm: number;
}

const EVENT = 16;
const BUILD = 'build/native/bench';
/** Number of operations for which instructions are counted. */
const COUNTED = 50_000;

/** Fills every slot, then replaces the blocks of random slots. Sizes are log-uniform. */
function randomWorkload(name: string, slots: number, operations: number, smallest: number, largest: number): Workload {
  const slot: number[] = [];
  const bytes: number[] = [];
  let state = 12345;
  const next = () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 4294967296;
  };
  const size = () => Math.floor(smallest * (largest / smallest) ** next());
  for (let index = 0; index < slots; index++) {
    slot.push(index);
    bytes.push(size());
  }
  const warm = slot.length;
  while (slot.length < warm + operations) {
    const place = Math.floor(next() * slots);
    slot.push(place, place);
    bytes.push(0, size());
  }
  return { name, slots, slot: Uint32Array.from(slot), bytes: Float64Array.from(bytes), warm };
}

/** A recorded run, four times in a row. Blocks left at the end of a pass are freed. Only the last two passes are measured. */
function recordedWorkload(name: string, trace: Trace): Workload {
  const slot: number[] = [];
  const bytes: number[] = [];
  let warm = 0;
  for (let pass = 0; pass < 4; pass++) {
    const live = new Set<number>();
    for (let event = 0; event < trace.events.count; event++) {
      const allocation = trace.allocationOf[event]!;
      const kind = trace.events.kind[event];
      if (allocation < 0 || (kind !== EventKind.Alloc && kind !== EventKind.FreeCompleted)) continue;
      if (kind === EventKind.FreeCompleted && !live.delete(allocation)) continue;
      if (kind === EventKind.Alloc) live.add(allocation);
      slot.push(allocation);
      bytes.push(kind === EventKind.Alloc ? Math.max(1, trace.events.size[event]!) : 0);
    }
    for (const allocation of live) {
      slot.push(allocation);
      bytes.push(0);
    }
    if (pass === 1) warm = slot.length;
  }
  return { name, slots: trace.allocations.count, slot: Uint32Array.from(slot), bytes: Float64Array.from(bytes), warm };
}

/** Nanoseconds per operation of one batch replay in WebAssembly. */
function wasmNs(workload: Workload): number {
  const engine = instantiateEngine(new SimulatedBackend());
  const count = workload.slot.length;
  const events = engine.buffer(count * EVENT);
  const slots = engine.buffer(workload.slots * 4);
  const view = new DataView(engine.memory.buffer);
  for (let index = 0; index < workload.slots; index++) view.setUint32(slots + index * 4, 0, true);
  for (let index = 0; index < count; index++) {
    view.setUint32(events + index * EVENT, workload.slot[index]!, true);
    view.setUint32(events + index * EVENT + 4, 0, true);
    view.setBigUint64(events + index * EVENT + 8, BigInt(workload.bytes[index]!), true);
  }
  engine.replay(events, workload.warm, slots, 0);
  const began = performance.now();
  engine.replay(events + workload.warm * EVENT, count - workload.warm, slots, 0);
  const elapsed = performance.now() - began;
  if (engine.check(2) !== 0) throw new Error('the engine broke a rule');
  return (elapsed * 1e6) / (count - workload.warm);
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]!;
}

/** The compiled yardstick, or why there is none. */
function buildYardstick(): { path: string } | { reason: string } {
  if (!hasCompiler('cpp')) return { reason: `no C++ compiler (${compilerOf('cpp')})` };
  const path = `${BUILD}/yardstick`;
  try {
    compileProgram(['bench/yardstick.cpp'], 'bench', path, linkedWith('libweir_engine.so', '..'));
    return { path };
  } catch (error) {
    return { reason: (error as Error).message };
  }
}

/** Writes the operations to a file for the yardstick and returns its path. */
function writeOperations(workload: Workload, count: number): string {
  const bytes = new DataView(new ArrayBuffer(8 + count * EVENT));
  bytes.setUint32(0, count, true);
  bytes.setUint32(4, workload.slots, true);
  for (let index = 0; index < count; index++) {
    bytes.setUint32(8 + index * EVENT, workload.slot[index]!, true);
    bytes.setBigUint64(8 + index * EVENT + 8, BigInt(workload.bytes[index]!), true);
  }
  const file = `${BUILD}/operations`;
  writeFileSync(file, new Uint8Array(bytes.buffer));
  return file;
}

function nativeNs(path: string, workload: Workload, rounds: number): { setNs: number; engineNs: number } {
  const file = writeOperations(workload, workload.slot.length);
  const result = spawnSync(path, [file, String(rounds), String(workload.warm)], { encoding: 'utf8' });
  if (result.status !== 0) throw new Error(`the yardstick failed: ${result.stderr}`);
  return JSON.parse(result.stdout) as { setNs: number; engineNs: number };
}

/**
 * Instructions per operation of the C engine, counted by valgrind, so caches and other work on the machine have no effect.
 * The difference between two numbers of operations leaves out the start of the program.
 */
function instructionsPerOperation(path: string, workload: Workload): number | null {
  const counted = (operations: number): number | null => {
    const file = writeOperations(workload, workload.warm + operations);
    const tool = ['--tool=callgrind', '--callgrind-out-file=/dev/null', path, file, '1', String(workload.warm), 'alone'];
    const match = /Collected : (\d+)/.exec(spawnSync('valgrind', tool, { encoding: 'utf8' }).stderr ?? '');
    return match ? Number(match[1]) : null;
  };
  const few = counted(COUNTED);
  const many = counted(2 * COUNTED);
  return few === null || many === null ? null : (many - few) / COUNTED;
}

interface PairRow {
  readonly bytes: number;
  readonly engineAtOnceNs: number;
  readonly engineInTurnNs: number;
  readonly setAtOnceNs: number;
  readonly setInTurnNs: number;
}

/** A request and a free, lock included: what a program pays for each tensor. */
function measurePair(path: string, bytes: number): PairRow {
  const result = spawnSync(path, ['pair', String(bytes), '9'], { encoding: 'utf8' });
  if (result.status !== 0) throw new Error(`the yardstick failed: ${result.stderr}`);
  const row = { bytes, ...(JSON.parse(result.stdout) as Omit<PairRow, 'bytes'>) };
  console.log(
    `${`malloc and free of ${bytes / KIB} KiB`.padEnd(34)} native ${row.engineAtOnceNs.toFixed(0)} ns at once, ${row.engineInTurnNs.toFixed(0)} in turn   std::set ${row.setAtOnceNs.toFixed(0)}, ${row.setInTurnNs.toFixed(0)}`,
  );
  return row;
}

const yardstick = buildYardstick();
if ('reason' in yardstick) console.log(`Native rows are left out: ${yardstick.reason}`);

interface SpeedRow {
  readonly workload: string;
  readonly blocks: number;
  readonly wasmNs: number;
  readonly engineNs: number | null;
  readonly setNs: number | null;
}

function measure(workload: Workload, rounds: number): SpeedRow {
  const wasm = median(Array.from({ length: rounds }, () => wasmNs(workload)));
  const native = 'path' in yardstick ? nativeNs(yardstick.path, workload, rounds) : null;
  const row = {
    workload: workload.name,
    blocks: workload.slots,
    wasmNs: wasm,
    engineNs: native?.engineNs ?? null,
    setNs: native?.setNs ?? null,
  };
  console.log(
    `${workload.name.padEnd(34)} wasm ${wasm.toFixed(0).padStart(5)} ns (${(1e3 / wasm).toFixed(1)} M/s)   native ${row.engineNs?.toFixed(0) ?? '-'} ns   std::set ${row.setNs?.toFixed(0) ?? '-'} ns`,
  );
  return row;
}

console.log(`Nanoseconds per operation, median of several runs; ${thisMachine()}`);
const rows: SpeedRow[] = [];
rows.push(measure(randomWorkload('random 512 B..32 MiB, 4096 blocks', 4096, 1e6, 512, 32 * MIB), 5));
rows.push(measure(randomWorkload('random 512 B..1 MiB, 4096 blocks', 4096, 1e6, 512, MIB), 5));
for (const { name, trace } of trainingTraces()) rows.push(measure(recordedWorkload(name, trace), 5));
const pairs = 'path' in yardstick ? [4 * KIB, 2 * MIB, 64 * MIB].map((bytes) => measurePair(yardstick.path, bytes)) : [];
const scaling: (SpeedRow & { readonly instructions: number | null })[] = [];
for (const blocks of [1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6]) {
  const workload = randomWorkload(`512 B..128 KiB, ${blocks} blocks`, blocks, 1e6, 512, 128 * KIB);
  const instructions = 'path' in yardstick ? instructionsPerOperation(yardstick.path, workload) : null;
  if (instructions !== null) console.log(`${' '.repeat(35)}${instructions.toFixed(0)} instructions per operation`);
  scaling.push({ ...measure(workload, 3), instructions });
}
const decades = growthByDecade();
console.log('Nanoseconds more per operation for ten times the blocks:');
for (const { from, to, engineNs, setNs } of decades) {
  console.log(
    `  ${from.toLocaleString('en-US')} to ${to.toLocaleString('en-US')}: native ${engineNs.toFixed(0)}, std::set ${setNs.toFixed(0)}`,
  );
}

function growthByDecade(): { from: number; to: number; engineNs: number; setNs: number }[] {
  return scaling.flatMap((low) => {
    const high = scaling.find((row) => row.blocks === low.blocks * 10);
    if (!high || low.engineNs === null || high.engineNs === null || low.setNs === null || high.setNs === null) return [];
    return [{ from: low.blocks, to: high.blocks, engineNs: high.engineNs - low.engineNs, setNs: high.setNs - low.setNs }];
  });
}

const source = provenanceOf('npm run bench');
mkdirSync('bench/results', { recursive: true });
const points = (pick: (row: (typeof scaling)[number]) => number | null) =>
  scaling.flatMap((row): [number, number][] => {
    const value = pick(row);
    return value === null ? [] : [[row.blocks, value]];
  });
writeFileSync(
  `bench/results/engine-scaling-${source.date}.svg`,
  plotLogarithmic('Cost per operation by live blocks', 'live blocks', [
    { name: 'native engine, instructions', points: points((row) => row.instructions) },
    { name: 'native engine, ns', points: points((row) => row.engineNs) },
    { name: 'WebAssembly engine, ns', points: points((row) => row.wasmNs) },
    { name: 'C++ std::set best fit, ns', points: points((row) => row.setNs) },
  ]),
);
writeFileSync(
  `bench/results/engine-${source.date}.json`,
  `${JSON.stringify({ schema: 1, ...source, rows, pairs, scaling, decades }, null, 2)}\n`,
);
