// Makes the corpus anew from samples and by hand: `node build/test/fuzz/make-corpus.js`. Needs the program zstd.
// Inputs stay small, so that millions of them can be read. Files named `defect-...` are left alone.
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { Format } from '../../src/abi/formats.ts';
import { swapPlanFile, writePlan } from '../../src/plan/files/plan-file.ts';
import { readPlanText, swapStepFrom } from '../../src/plan/files/plan-input.ts';
import { planOffsets } from '../../src/plan/offsets/planner.ts';
import { findStep, planStep } from '../../src/plan/steps/step-plan.ts';
import { H200_COPIES } from '../../src/plan/swaps/copy-costs.ts';
import { planSwapStep } from '../../src/plan/swaps/planner.ts';
import { failureFile } from '../../src/run/failures/failure-file.ts';
import { type Failure, ProcessMemory } from '../../src/run/failures/process-memory.ts';
import { assembleTrace } from '../../src/trace/assemble.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { EventStore } from '../../src/trace/event-store.ts';
import { writeSnapshotJson } from '../../src/trace/snapshot-json.ts';
import { Symbols } from '../../src/trace/symbols.ts';
import { EventKind, type Recording } from '../../src/trace/trace.ts';
import { writeWeir } from '../../src/trace/weir/writer.ts';
import { rowsOf, TestProcess, type TestRow } from '../run/failure-rows.ts';
import { RingWriter } from '../run/ring-writer.ts';
import { newestSnapshot } from '../support/newest-snapshot.ts';
import { type PickleValue, Tuple, writePickle } from '../support/pickle-writer.ts';
import { readSample } from '../support/samples.ts';
import { ROOT } from './corpus.ts';
import { DRAIN, encodePatch, patchesFrom } from './formats/ring.ts';
import { joined } from './mutate.ts';

const MOST_BYTES = 4096;
const SAMPLES = ['exact/s1.pickle', 'exact/exp.pkl.gz', 'exact/async.pkl.gz', 'exact/pools.pkl.gz', 'exact/full.pkl.gz'];

function put(folder: string, name: string, content: Uint8Array | string): void {
  const bytes = Buffer.from(content as Uint8Array);
  if (bytes.length > MOST_BYTES) throw new Error(`${folder}/${name} has ${bytes.length} bytes, above ${MOST_BYTES}`);
  writeFileSync(new URL(`test/fuzz/corpus/${folder}/${name}.bin`, ROOT), bytes);
}

function clear(folder: string): void {
  const path = new URL(`test/fuzz/corpus/${folder}/`, ROOT);
  mkdirSync(path, { recursive: true });
  for (const name of readdirSync(path)) if (!name.startsWith('defect-')) rmSync(new URL(name, path));
}

interface Snapshot {
  segments: { address: number }[];
  device_traces: { frames?: unknown[] }[][];
  [key: string]: unknown;
}

/** The first events and segments of a snapshot. */
function cutSnapshot(name: string, events: number): Snapshot {
  const snapshot = jsonOf(readRecording(readSample(name)));
  const kept = snapshot.device_traces.map((trace) =>
    trace.slice(0, events).map((event) => ({ ...event, frames: (event.frames ?? []).slice(0, 3) })),
  );
  return { ...snapshot, device_traces: kept.filter((trace) => trace.length > 0), segments: snapshot.segments.slice(0, 2).map(shorten) };
}

function shorten(segment: object): { address: number } {
  const { blocks, frames, ...rest } = segment as { address: number; blocks?: object[]; frames?: unknown[] };
  return { ...rest, blocks: (blocks ?? []).slice(0, 3), frames: (frames ?? []).slice(0, 2) } as { address: number };
}

/** As JSON, without what other inputs have too. */
function textOf(snapshot: PickleValue): string {
  const left = new Set([
    'compile_context',
    'allocator_settings',
    'fx_original_trace',
    'allocated_size',
    'active_size',
    'segment_type',
    'is_expandable',
  ]);
  return JSON.stringify(snapshot, (key, value) => (left.has(key) ? undefined : value instanceof Tuple ? value.items : value));
}

function jsonOf(recording: Recording): Snapshot {
  let text = '';
  writeSnapshotJson(recording, (part) => {
    text += part;
  });
  return JSON.parse(text) as Snapshot;
}

function weirOf(recording: Recording): Uint8Array {
  const chunks: Uint8Array[] = [];
  writeWeir(recording, (chunk) => chunks.push(Uint8Array.from(chunk)));
  return joined(...chunks);
}

/** Three steps of a small network with operators, reads, writes and marks. */
function training(steps: number): Recording {
  const store = new EventStore();
  const symbols = new Symbols();
  let now = 1000;
  const add = (kind: EventKind, address: number, size: number) => store.append(kind, address, size, now++, 0, 0, -1, 0);
  for (let step = 0; step < steps; step++) {
    store.setOptional(add(EventKind.Mark, 0, 0), 'detail', symbols.internString(`step ${step}`));
    for (const block of [1, 2, 3]) {
      add(EventKind.Alloc, block * 4096, 512 * block);
      store.setOptional(add(EventKind.Operator, 0, 5), 'detail', symbols.internString('mm'));
      add(EventKind.Write, block * 4096, 0);
    }
    for (const block of [3, 2, 1]) {
      add(EventKind.Read, block * 4096, 0);
      add(EventKind.FreeRequested, block * 4096, 512 * block);
      add(EventKind.FreeCompleted, block * 4096, 512 * block);
    }
  }
  const parts = {
    device: 0,
    events: store.view(),
    streams: [0],
    pools: [[0, 0] as [number, number]],
    symbols,
    limits: {},
    annotations: [],
    warnings: [],
  };
  return { format: 'weir', traces: [assembleTrace({ ...parts, startSegments: undefined, endSegments: undefined, settings: new Map() })] };
}

/** A file about an out-of-memory error: a start with all that was live, categories, memory that is not PyTorch's. */
function failure(): Uint8Array {
  const job = new TestProcess();
  const stack = job.stack('forward', 7);
  job.other = { total: 1000, used: 900, reserved: 800, process: 850 };
  const found: Failure[] = [];
  const memory = new ProcessMemory(
    () => false,
    () => false,
    3,
  );
  const rows = rowsOf([
    { kind: EventKind.Reserved, size: 4096, time: 1000 },
    { kind: EventKind.Alloc, address: 4096, size: 512, stack, time: 1001 },
    { kind: EventKind.Alloc, address: 8192, size: 1024, stack, time: 1002 },
    { kind: EventKind.Category, address: 4096, detail: 1, time: 1003 },
    { kind: EventKind.FreeRequested, address: 8192, size: 1024, time: 1004 },
    { kind: EventKind.Alloc, address: 16384, size: 512, stack, time: 1005 },
    { kind: EventKind.FreeCompleted, address: 8192, size: 1024, time: 1006 },
    { kind: EventKind.Oom, address: 100, size: 2048, stack, time: 1007 },
  ]);
  memory.take(rows, (each) => found.push(each));
  return failureFile(found[0]!, memory.capture(found[0]!)!, job);
}

function makeRecordings(): void {
  for (const folder of ['pickle', 'json', 'weir', 'gzip', 'zstd']) clear(folder);
  SAMPLES.forEach((name, index) => {
    const short = name.replace(/^exact\/|\..*$/g, '');
    const snapshot = cutSnapshot(name, 4 + index);
    const text = JSON.stringify(snapshot);
    const plain = snapshot as unknown as PickleValue;
    put('json', short, text);
    put('pickle', `${short}-4`, unframed(writePickle(plain, { protocol: 4 })));
    if (index < 2) {
      put('pickle', `${short}-2`, writePickle(plain, { protocol: 2, batch: 2 }));
      put('pickle', `${short}-5-plain`, unframed(writePickle(plain, { protocol: 5, memoize: false })));
      put('pickle', `${short}-framed`, writePickle(plain, { protocol: 4 }));
    }
    const weir = weirOf(readRecording(new TextEncoder().encode(text)));
    put('weir', short, weir);
    if (index < 3) {
      put('gzip', `${short}-json`, gzipSync(text));
      put('gzip', `${short}-weir`, joined(gzipSync(weir.subarray(0, 100)), gzipSync(weir.subarray(100))));
      for (const level of [1, 19]) put('zstd', `${short}-json-${level}`, zstd(text, `-${level}`));
      put('zstd', `${short}-weir`, zstd(weir, '--no-check', '-3'));
    }
  });
  const newest = readRecording(writePickle(newestSnapshot()));
  put('pickle', 'newest-5', unframed(writePickle(newestSnapshot(), { protocol: 5 })));
  put('pickle', 'newest-2', writePickle(newestSnapshot(), { protocol: 2, batch: 2 }));
  put('json', 'newest', textOf(newestSnapshot()));
  put('json', 'newest-converted', JSON.stringify(jsonOf(newest)));
  put('weir', 'newest', weirOf(newest));
  put('weir', 'failure', failure());
  for (const steps of [2, 3]) put('weir', `training-${steps}`, weirOf(training(steps)));
  put('json', 'list', '[[{"action":"alloc","addr":4096,"size":512,"stream":0}],[]]');
  put(
    'json',
    'events',
    `{"segments":[],"device_traces":[[${[1, 2, 3].map((n) => `{"action":"alloc","addr":${n * 512},"size":512,"stream":0,"time_us":${n}}`)}]]}`,
  );
}

/** The pickle without its frame, which would give every mutant away that is shorter than it was. */
function unframed(pickle: Uint8Array): Uint8Array {
  return joined(pickle.subarray(0, 2), pickle.subarray(11));
}

function zstd(content: Uint8Array | string, ...options: string[]): Uint8Array {
  const { stdout, status } = spawnSync('zstd', ['-q', '-c', ...options], { input: content });
  if (status !== 0) throw new Error('the program zstd is missing');
  return stdout;
}

const CSV = 'id,lower,upper,size\na,0,4,10\nb,2,6,20\nc,5,9,10\nd,1,8,5\n';

/** Two or more equal steps of allocations and frees. */
function mallocText(steps: number): string {
  const blocks = [1, 2, 3, 4];
  const lines: string[] = [];
  for (let step = 0; step < steps; step++) {
    for (const block of blocks) lines.push(`Malloc 0x${block}0 ${block * 512} ${lines.length}`);
    for (const block of blocks) lines.push(`Free 0x${block}0 ${lines.length}`);
  }
  return `${lines.join('\n')}\n`;
}

/** A trace of the AutoSwap study. Its step has 64 events, the fewest that count. */
function autoSwapText(steps: number, form: 'text' | 'numbered' | 'csv'): string {
  const lines: string[] = [];
  const add = (kind: string, number: number, pointer: number, size: number) => {
    const time = `${form === 'csv' ? '16000000000000' : ''}${1000 + lines.length * 7}`;
    const index = form === 'numbered' ? `${lines.length} ` : '';
    lines.push(form === 'csv' ? `${number},0x${pointer},${size},${time}` : `${index}${kind} 0x${pointer} ${size} ${time}`);
  };
  for (let step = 0; step < steps; step++) {
    for (let block = 1; block <= 16; block++) {
      add('Malloc', 1, block, block * 512);
      add('Mutable', 4, block, block * 512);
    }
    for (let block = 16; block >= 1; block--) {
      add('Read', 2, block, block * 512);
      add('Free', -1, block, block * 512);
    }
  }
  return `${lines.join('\n')}\n`;
}

function accessText(steps: number): string {
  const ops: unknown[] = [];
  const trace: unknown[] = [[0, 'alloc', 4096, 2 ** 20, 0]];
  let now = 1;
  const bounds: [number, number][] = [];
  for (let step = 0; step < steps; step++) {
    const start = now;
    for (const block of [1, 2]) {
      trace.push([now, 'alloc', block * 2 ** 24, 2 ** 22 * block, 0]);
      ops.push([now, now + 4000, 'mm', [4096], [block * 2 ** 24]]);
      now += 5000;
    }
    for (const block of [2, 1]) {
      ops.push([now, now + 4000, 'mm_backward', [block * 2 ** 24], [4096]]);
      trace.push([now + 4500, 'free_completed', block * 2 ** 24, 2 ** 22 * block, 0]);
      now += 5000;
    }
    bounds.push([start, now]);
  }
  return JSON.stringify({ workload: 'small', steps: bounds, ops, trace });
}

function makePlanInputs(): void {
  for (const folder of ['csv', 'malloc', 'autoswap', 'accesses', 'plan']) clear(folder);
  put('csv', 'buffers', CSV);
  put('csv', 'end', 'buffer_id,start,end,size,alignment\r\n0,0,3,512,512\r\n1,2,5,1024,512\r\n2,4,7,512,512\r\n');
  put('csv', 'gaps', '\ufeffid,lower,upper,size,offset,gaps,hint\na,0,40,10,0,10-20 25-30,\nb,12,18,10,,,\nc,0,9,7,100,1-2@0:4,x\n');
  put('malloc', 'steps', mallocText(6));
  put('malloc', 'short', mallocText(1));
  for (const form of ['text', 'numbered', 'csv'] as const) put('autoswap', form, autoSwapText(2, form));
  put('accesses', 'training', accessText(4));
  put('accesses', 'two-steps', accessText(2));

  const buffers = readPlanText(CSV)!;
  if (buffers.kind !== 'buffers') throw new Error(buffers.kind);
  put('plan', 'offsets', writePlan({ kind: 'offsets', buffers: buffers.buffers, layout: planOffsets(buffers.buffers) }));
  const ops = readPlanText(mallocText(6))!;
  if (ops.kind !== 'operations') throw new Error(ops.kind);
  const found = findStep(ops.ops);
  if (!found.periodic) throw new Error(found.reason);
  put('plan', 'step', writePlan({ kind: 'step', plan: planStep(found.step) }));
  const accesses = readPlanText(accessText(4))!;
  if (accesses.kind !== 'accesses') throw new Error(accesses.kind);
  const step = swapStepFrom(accesses.recording);
  put('plan', 'swaps', writePlan(swapPlanFile(step, planSwapStep(step, { costs: H200_COPIES, budgetMs: 100 }), H200_COPIES)));
}

function makeExchange(): void {
  for (const folder of ['profile', 'ring']) clear(folder);
  const version = Format.exchange.version;
  const copies = { outAlone: 55e9, inAlone: 55e9, outBoth: 40e9, inBoth: 40e9, fixedUs: 5 };
  const ticks = {
    us: [0, 1000, 2000, 3000, 4000, 5000],
    peak: [5e8, 6e8, 7e8, 7e8, 6e8, 5e8],
    kind: [0, 1, 1, 2, 2, 3],
    value: [0, 0, 1, 1, 0, 0],
    size: [0, 1, 1, 1, 1, 0],
  };
  const profile = {
    version,
    key: 'small',
    periodUs: 6000,
    ticks,
    records: [
      { size: 2 ** 27, first: 1, sole: 1, uses: [4] },
      { size: 2 ** 26, first: 2, sole: -1, uses: [3, 4] },
    ],
    items: [{ size: 2 ** 26, pre: 5, post: 0 }],
    passages: [{ size: 2 ** 25, left: 1, needed: 4 }],
    copies,
    hostLimit: 2 ** 33,
    pid: 1,
  };
  put('profile', 'free', JSON.stringify(profile));
  put('profile', 'limit', JSON.stringify({ ...profile, limit: 6e8, share: 0.5 }));
  put(
    'profile',
    'report',
    JSON.stringify({ version, pid: 1, steps: 10, moves: 3, swappedOut: 1e9, swappedIn: 1e9, stalls: 0, stallUs: 0 }),
  );

  const folder = mkdtempSync(join(tmpdir(), 'weir-fuzz-corpus-'));
  const writer = new RingWriter(folder, { pid: 1, rank: 0, capacity: 32 });
  writer.gauges(0, { total: 2 ** 34, limit: 2 ** 33, live: 512 });
  writer.stream(0, 0, 0);
  writer.pool(0, 0, [0, 0]);
  const name = writer.string('step 1');
  const settings = writer.string('{"expandable_segments":true}');
  const take = () => patchesFrom(readFileSync(writer.path));
  writer.put({ kind: EventKind.Settings, detail: settings, time: 1 });
  writer.put({ kind: EventKind.Mark, detail: name, time: 2 });
  const frame = writer.frame(writer.frameString('step'), writer.frameString('train.py'), 7);
  const stack = writer.stack(writer.stack(-1, frame), writer.frame(writer.frameString('backward of Mul'), 0, 0));
  writer.put({ kind: EventKind.Alloc, address: 4096, size: 512, time: 3, stack });
  const first = take();
  put('ring', 'begun', first);
  writer.stream(0, 1, 77);
  for (let row = 0; row < 6; row++) {
    writer.put({ kind: EventKind.FreeRequested, address: 4096, size: 512, time: 4 + row });
    writer.put({ kind: EventKind.FreeCompleted, address: 4096, size: 512, stream: 1, time: 4 + row });
    writer.put({ kind: EventKind.Alloc, address: 4096, size: 512, time: 5 + row, stack: row % 3 });
  }
  writer.close();
  put('ring', 'closed', joined(first, encodePatch({ at: DRAIN, bytes: new Uint8Array(0) }), take()));
  rmSync(folder, { recursive: true });
}

function makeOthers(): void {
  for (const folder of ['question', 'numbers']) clear(folder);
  const range = { from: 0, to: 100, columns: 800 };
  const window = { ...range, axis: 'event', low: 0, high: 2 ** 30, rows: 400 };
  put('question', 'timeline', JSON.stringify({ method: 'timeline', gpu: 0, run: 'recorded', axis: 'time', ...range }));
  put('question', 'map', JSON.stringify({ method: 'map', gpu: 0, run: 'recorded', window, colour: 'age', selection: { node: 3 } }));
  put('question', 'moment', JSON.stringify({ method: 'moment', gpu: 0, run: 'recorded', axis: 'event', position: 5, since: -1 }));
  const lines = [1, 2, 3].map((step) => `step ${step}, train_loss: ${1 / step}, 'loss': tensor(${step}.5e-3), acc=0.${step}`);
  put('numbers', 'losses', `${lines.join('\n')}\r\nloss is nan\nloss -inf\nloss ${'#'.repeat(20)}]\n`);
  put('numbers', 'plain', '1 2.5 -3e5 .5 nan inf\n');
}

/** Rows of processes that run out of memory, each with what was lost or damaged. */
function makeFailures(): void {
  clear('failures');
  const MIB = 2 ** 20;
  const base = 2 ** 40;
  const failed = { kind: EventKind.Oom, address: 5 * MIB, size: 900 * MIB };
  const block = { address: base + 10 * MIB, size: MIB };
  const turns = Array.from({ length: 15 }, () => [
    { kind: EventKind.Alloc, ...block },
    { kind: EventKind.FreeRequested, ...block },
    { kind: EventKind.FreeCompleted, ...block },
  ]).flat();
  const rowsFor: Record<string, readonly TestRow[]> = {
    // The free of a segment was lost, and another one is mapped over it.
    lost: [
      { kind: EventKind.SegmentAlloc, address: base, size: 20 * MIB },
      { kind: EventKind.SegmentMap, address: base, size: 20 * MIB },
      { kind: EventKind.Alloc, address: base, size: 10 * MIB },
      ...turns,
      failed,
    ],
    empty: [
      { kind: EventKind.SegmentAlloc, address: base, size: 20 * MIB },
      ...[1, 2, 3].map((index) => ({ kind: EventKind.SegmentAlloc, address: base + (100 + index) * MIB, size: 0 })),
      ...[1, 2, 3].map((index) => ({ kind: EventKind.Alloc, address: base + (100 + index) * MIB, size: 512 })),
      ...turns.slice(0, 12),
      failed,
    ],
    twice: [
      { kind: EventKind.Reserved, size: 40 * MIB },
      { kind: EventKind.Alloc, ...block, stack: 1 },
      failed,
      { kind: EventKind.Category, address: block.address, detail: 1 },
      { ...failed, address: 0, gpu: 1 },
      { kind: EventKind.Mark, detail: 5 },
    ],
  };
  for (const [name, rows] of Object.entries(rowsFor))
    for (const allocator of [0, 1])
      put(
        'failures',
        `${name}-${allocator}`,
        joined(Uint8Array.of(allocator, 5, 3, 0, 0, 0, 0, 0), rowsOf(rows.map((row, time) => ({ ...row, time: 1000 + time })))),
      );
}

makeOthers();
makeFailures();
makeRecordings();
makePlanInputs();
makeExchange();
