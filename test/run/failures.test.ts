// Files about out-of-memory errors: everything live, with stacks and categories, whatever the window, and after lost events.
import { readdirSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { CATEGORY_NAMES, PhaseMark } from '../../src/abi/events.ts';
import { MIB } from '../../src/base/bytes.ts';
import { reconstruct } from '../../src/replay/reconstruct.ts';
import { analyzeTrace } from '../../src/report/analysis.ts';
import { explainFailure } from '../../src/report/failure.ts';
import { analysisJson } from '../../src/report/json.ts';
import { isLiveAt } from '../../src/report/moment.ts';
import { formatAnalysis } from '../../src/report/terminal/analysis.ts';
import { failureLines } from '../../src/report/words/failure.ts';
import { failureFile } from '../../src/run/failures/failure-file.ts';
import { LiveTable } from '../../src/run/failures/live-table.ts';
import { type Failure, ProcessMemory } from '../../src/run/failures/process-memory.ts';
import { stackOf } from '../../src/trace/stacks.ts';
import { EventKind, type Trace } from '../../src/trace/trace.ts';
import { EVENT_BYTES } from '../../src/trace/weir/format.ts';
import { readWeir } from '../../src/trace/weir/reader.ts';
import { writeWeir } from '../../src/trace/weir/writer.ts';
import { flameGraph, nodeOf } from '../../src/view/flame.ts';
import { ROOT } from '../support/command.ts';
import { sampleTrace } from '../support/traces.ts';
import { rowsOf, TestProcess, type TestRow } from './failure-rows.ts';

const BASE = 0x7f00_0000_0000;

/** All failures of a process that has written these rows, read in pieces of `piece` rows. */
function failuresOf(process: TestProcess, rows: readonly TestRow[], windowRows = 8, piece = 1000): Failure[] {
  const textOf = (text: number) => process.symbols.strings[text] ?? '';
  const memory = new ProcessMemory(
    (text) => textOf(text).startsWith('weir:'),
    (text) => textOf(text) === PhaseMark.failure,
    windowRows,
  );
  const found: Failure[] = [];
  const bytes = rowsOf(rows);
  for (let at = 0; at < bytes.length; at += piece * EVENT_BYTES)
    memory.take(bytes.subarray(at, at + piece * EVENT_BYTES), (failure) => {
      memory.capture(failure);
      found.push(failure);
    });
  memory.close();
  return found;
}

function readTrace(failure: Failure, process: TestProcess, gpu = failure.gpu): Trace {
  return readWeir(failureFile(failure, failure.state!, process)).traces.find(({ device }) => device === gpu)!;
}

const lastOom = (trace: Trace) => trace.events.kind.subarray(0, trace.events.count).lastIndexOf(EventKind.Oom);

const lineOf = (trace: Trace, allocation: number) => [...trace.symbols.framesOf(stackOf(trace, allocation))][0]?.line;

/** What is live when the last request of a trace fails: requested bytes, line of the request and category, by address. */
function liveIn(trace: Trace): Map<number, string> {
  const event = lastOom(trace);
  const told = new Map<number, number>();
  for (let at = 0; at < trace.events.count; at++)
    if (trace.events.kind[at] === EventKind.Category) told.set(trace.allocationOf[at]!, trace.events.detail![at]!);
  const found = new Map<number, string>();
  for (let index = 0; index < trace.allocations.count; index++)
    if (isLiveAt(trace, index, event))
      found.set(trace.allocations.address[index]!, `${trace.allocations.requested[index]} ${lineOf(trace, index)} ${told.get(index) ?? 0}`);
  return found;
}

describe('the file about a failure', () => {
  it('holds exactly what was live, for any run, window and pieces', () => {
    const operation = fc.record({ what: fc.nat(9), place: fc.nat(15), gpu: fc.nat(1), size: fc.integer({ min: 1, max: 3 * MIB }) });
    const property = fc.property(
      fc.array(operation, { minLength: 1, maxLength: 120 }),
      fc.integer({ min: 1, max: 40 }),
      fc.integer({ min: 1, max: 30 }),
      (operations, windowRows, piece) => {
        const process = new TestProcess();
        const stacks = Array.from({ length: 7 }, (_, index) => process.stack(`f${index}`, index + 10));
        const end = process.symbols.internString(PhaseMark.failure);
        const rows: TestRow[] = [];
        const truth = [new Map<number, string>(), new Map<number, string>()];
        const expected: string[][][] = [];
        const pending = new Set<number>();
        for (const [index, { what, place, gpu, size }] of operations.entries()) {
          const address = BASE + (place * 2 + gpu) * 4 * MIB;
          const live = truth[gpu]!;
          const isLive = live.has(address);
          if (what < 5 && !isLive && !pending.has(address)) {
            const stack = stacks[index % stacks.length]!;
            rows.push({ kind: EventKind.Alloc, address, size, gpu, stack });
            live.set(address, `${size} ${(index % stacks.length) + 10} 0`);
          } else if (what < 7 && isLive) {
            rows.push({ kind: EventKind.FreeRequested, address, size: 0, gpu });
            live.delete(address);
            if (what === 5) rows.push({ kind: EventKind.FreeCompleted, address, size: 0, gpu });
            else pending.add(address);
          } else if (what < 8 && pending.delete(address)) rows.push({ kind: EventKind.FreeCompleted, address, size: 0, gpu });
          else if (what === 8 && isLive) {
            const category = index % CATEGORY_NAMES.length;
            rows.push({ kind: EventKind.Category, address, size, gpu, detail: category });
            live.set(address, live.get(address)!.replace(/ \d+$/, ` ${category}`));
          } else if (what === 9) {
            rows.push(
              { kind: EventKind.Oom, address: 100, size: 2 ** 29, gpu, stack: stacks[0]! },
              { kind: EventKind.Mark, gpu, detail: end },
            );
            expected.push(truth.map((each) => [...each].map(([at, text]) => `${at} ${text}`).sort()));
          }
        }
        const failures = failuresOf(process, rows, windowRows, piece);
        expect(failures).toHaveLength(expected.length);
        for (const [index, failure] of failures.entries()) {
          const trace = readTrace(failure, process);
          expect(trace.warnings.filter(({ code }) => code !== 'no-demand')).toEqual([]);
          expect(trace.symbols.strings).toContain('/home/me/job/train.py');
          expect([...liveIn(trace)].map(([at, text]) => `${at} ${text}`).sort()).toEqual(expected[index]![failure.gpu]);
        }
      },
    );
    fc.assert(property, { numRuns: 300 });
  });

  function holders(windowRows: number): { failure: Failure; process: TestProcess } {
    const process = new TestProcess();
    process.deviceBytes = 800 * MIB;
    const [weights, hidden, loss] = [process.stack('build', 10), process.stack('forward', 20), process.stack('loss', 30)];
    const backward = process.symbols.internString(PhaseMark.backward);
    const [failure] = failuresOf(
      process,
      [
        { kind: EventKind.Reserved, size: 640 * MIB },
        { kind: EventKind.Alloc, address: BASE, size: 100 * MIB, stack: weights },
        { kind: EventKind.Category, address: BASE, size: 100 * MIB, detail: CATEGORY_NAMES.indexOf('parameter') },
        { kind: EventKind.Mark, detail: backward },
        ...Array.from({ length: 20 }, (_, index) => ({
          kind: EventKind.Alloc,
          address: BASE + (200 + index * 25) * MIB,
          size: 25 * MIB,
          stack: hidden,
        })),
        { kind: EventKind.Oom, address: 60 * MIB, size: 250 * MIB, stack: loss },
        // The process looks at its memory and unwinds.
        { kind: EventKind.Category, address: BASE + 200 * MIB, size: 25 * MIB, detail: CATEGORY_NAMES.indexOf('activation') },
        { kind: EventKind.FreeRequested, address: BASE + 225 * MIB, size: 25 * MIB },
        { kind: EventKind.FreeCompleted, address: BASE + 225 * MIB, size: 25 * MIB },
        { kind: EventKind.Alloc, address: BASE + 225 * MIB, size: 25 * MIB, stack: loss },
        { kind: EventKind.Category, address: BASE + 225 * MIB, size: 25 * MIB, detail: CATEGORY_NAMES.indexOf('buffer') },
        { kind: EventKind.Mark, detail: process.symbols.internString(PhaseMark.failure) },
        { kind: EventKind.Category, address: BASE + 250 * MIB, size: 25 * MIB, detail: CATEGORY_NAMES.indexOf('buffer') },
      ],
      windowRows,
    );
    return { failure: failure!, process };
  }

  it.each([1, 8, 1000])('names request, holders and categories, with a window of %d rows', (windowRows) => {
    const { failure, process } = holders(windowRows);
    const facts = explainFailure(readTrace(failure, process))!;
    expect(facts).toMatchObject({
      asked: 250 * MIB,
      site: 'job/train.py:30 loss',
      phase: 'backward',
      live: 600 * MIB,
      reserved: 640 * MIB,
      deviceFree: 60 * MIB,
      categories: { parameter: 100 * MIB, activation: 25 * MIB, buffer: 0, unknown: 475 * MIB },
      sites: [
        { label: 'job/train.py:20 forward', bytes: 500 * MIB, allocations: 20 },
        { label: 'job/train.py:10 build', bytes: 100 * MIB, allocations: 1 },
      ],
      fit: { short: 150 * MIB, isOversized: false },
    });
    expect(failureLines(facts, 'rank 1 (process 7)', 'oom.1.7.weir')).toEqual([
      'out of memory: rank 1 (process 7), GPU 0, in backward: a request for 250 MiB failed',
      '  requested at: job/train.py:30 loss',
      '  in use: 600 MiB, reserved: 640 MiB, free on the GPU: 60 MiB of 800 MiB',
      "  memory that is not PyTorch's: unknown",
      '  by category: parameters 100 MiB, activations 25 MiB, unknown 475 MiB',
      '  by call site: 500 MiB in 20 allocations: job/train.py:20 forward',
      '                100 MiB in 1 allocation: job/train.py:10 build',
      '  to make it fit: 150 MiB less. One of: a smaller batch or activation checkpointing; weir run --swap auto',
      '  next: weir analyze oom.1.7.weir',
    ]);
  });

  it('says that a limit stood in the way if the GPU had room', () => {
    const process = new TestProcess();
    process.deviceBytes = 800 * MIB;
    const rows = [
      { kind: EventKind.Reserved, size: 200 * MIB },
      { kind: EventKind.Alloc, address: BASE, size: 200 * MIB },
      { kind: EventKind.Oom, address: 600 * MIB, size: 100 * MIB },
    ];
    const [failure] = failuresOf(process, rows, 10);
    const lines = failureLines(explainFailure(readTrace(failure!, process))!, 'process 7', undefined);
    expect(lines.at(-1)).toBe(
      '  to make it fit: a higher limit. The GPU had 600 MiB free, so a limit of the program stood in the way, such as torch.cuda.set_per_process_memory_fraction()',
    );
  });

  it('shows request, stack and holders in weir analyze, as text and JSON', () => {
    const { failure, process } = holders(4);
    process.other = { total: 800 * MIB, used: 740 * MIB, reserved: 640 * MIB, process: 700 * MIB };
    const analysis = analyzeTrace(readTrace(failure, process));
    const text = formatAnalysis(analysis, 'oom.weir');
    expect(text).toContain('a request for 250 MiB failed.');
    expect(text).toContain(
      '  Requested at job/train.py:30 loss:\n    /home/me/job/train.py:30 loss\n    /home/me/job/train.py:3 main\n  In use by category: parameters 100 MiB, activations 25 MiB, unknown 475 MiB.\n',
    );
    expect(text).toMatch(/Live memory by call site, when the request failed:\n +500 MiB +20 x +job\/train\.py:20 forward\n/);
    expect(text).toContain(
      "Memory that is not PyTorch's: 100 MiB (CUDA context, NCCL and libraries of this process 60 MiB, other processes 40 MiB).",
    );
    expect(text).not.toContain('warning');
    expect(analysisJson(analysis, 'oom.weir')).toMatchObject({
      warnings: [],
      oom: { site: 'job/train.py:30 loss', stack: [{ name: 'loss', line: 30 }, { name: 'main' }], categories: { parameter: 100 * MIB } },
      otherMemory: { process: 700 * MIB },
    });
  });

  it('keeps stacks and everything else when it is converted, and its flame graph is whole', () => {
    const { failure, process } = holders(4);
    process.other = { total: 8, used: 7, reserved: 6 };
    const { traces, format } = readWeir(failureFile(failure, failure.state!, process));
    const chunks: Uint8Array[] = [];
    writeWeir({ traces, format }, (chunk) => chunks.push(chunk));
    const again = readWeir(Buffer.concat(chunks)).traces[0]!;
    expect([...liveIn(again)]).toEqual([...liveIn(traces[0]!)]);
    expect([again.warnings, again.otherMemory, again.startIsWhole]).toEqual([[], process.other, true]);
    const leaves = Array.from({ length: again.allocations.count }, (_, index) => ({ node: nodeOf(again, index), bytes: MIB }));
    expect(flameGraph(again, leaves).name).toEqual(expect.arrayContaining(['main', 'build', 'forward']));
  });

  it('says that it is incomplete if events were lost, and drops what newer memory shows to be freed', () => {
    const process = new TestProcess();
    process.lost = 3;
    const stack = process.stack('f', 1);
    const [failure] = failuresOf(
      process,
      [
        { kind: EventKind.Alloc, address: BASE, size: 8 * MIB, stack },
        // The free of the first block is lost: half of it is given out again.
        { kind: EventKind.Alloc, address: BASE + 4 * MIB, size: MIB, stack },
        { kind: EventKind.Alloc, address: BASE + 16 * MIB, size: MIB, stack },
        { kind: EventKind.FreeCompleted, address: BASE + 99 * MIB, size: MIB },
        { kind: EventKind.Oom, address: 0, size: MIB, stack },
      ],
      1,
    );
    const trace = readTrace(failure!, process);
    expect([...liveIn(trace).keys()]).toEqual([BASE + 4 * MIB, BASE + 16 * MIB]);
    expect(trace.warnings).toMatchObject([{ code: 'dropped-events', message: expect.stringContaining('is incomplete') }]);
    expect(formatAnalysis(analyzeTrace(trace), 'x')).toContain('is incomplete');
  });

  it('is bounded: blocks beyond the bound are left out and counted', () => {
    const table = new LiveTable(4);
    const rows = rowsOf(Array.from({ length: 6 }, (_, index) => ({ kind: EventKind.Alloc, address: BASE + index * MIB, size: MIB })));
    const view = new DataView(rows.buffer, rows.byteOffset, rows.length);
    for (let at = 0; at < rows.length; at += EVENT_BYTES) table.apply(view, at);
    expect([table.size, table.copy().omitted]).toEqual([4, 2]);
    table.categorize(BASE, 300);
    table.categorize(BASE, -1);
    expect([...table.copy().category]).toEqual([0, 0, 0, 0]);
  });
});

describe('the table of what is live', () => {
  it('uses rows again, and what it knew of a block ends with the block', () => {
    const table = new LiveTable(2);
    for (let turn = 0; turn < 10; turn++) {
      const rows = rowsOf([
        { kind: EventKind.Alloc, address: BASE + turn * MIB, size: MIB },
        { kind: EventKind.FreeCompleted, address: BASE + (turn - 1) * MIB, size: MIB },
      ]);
      const view = new DataView(rows.buffer, rows.byteOffset, rows.length);
      for (let at = 0; at < rows.length; at += EVENT_BYTES) table.apply(view, at);
      const { state, category, count } = table.copy();
      for (let row = 0; row < count; row++) if (state[row] !== 0) expect(category[row]).toBe(0);
      table.categorize(BASE + turn * MIB, 3);
    }
    expect([table.size, table.copy().omitted]).toEqual([1, 0]);
  });
});

describe('a failure of a recording on PyTorch', () => {
  // From the first event on, so that a file about a failure in the middle can be compared with the whole recording.
  /**
   * Recordings that depend on what no event tells: the age of free blocks (garbage collection), memory that a block has beyond its
   * request, where the addresses of an expandable segment begin.
   */
  const UNSEEN = new Set(['gc-split', 'pools', 'round', 'full-exp', 'split-exp'].map((name) => `exact/${name}.pkl.gz`));
  const names = readdirSync(new URL('samples/exact/', ROOT))
    .map((name) => `exact/${name}`)
    .filter((name) => sampleTrace(name).startSegments.length === 0 && sampleTrace(name).warnings.length === 0);

  it.each(names)('restores the layout of %s to the byte', (name) => {
    const whole = sampleTrace(name);
    const { events } = whole;
    const process = new TestProcess('pytorch');
    const parts = { streamsOf: whole.streams, poolsOf: whole.pools };
    Object.assign(process, {
      settings: whole.settings,
      streamsOf: (gpu: number) => (gpu === 0 ? parts.streamsOf : []),
      poolsOf: (gpu: number) => (gpu === 0 ? parts.poolsOf : []),
      limitsOf: () => whole.limits,
    });
    let stop = events.kind.subarray(0, events.count).indexOf(EventKind.Oom);
    if (stop < 0) stop = Math.floor(events.count / 2);
    const rows: TestRow[] = Array.from({ length: stop }, (_, event) => ({
      kind: events.kind[event]!,
      address: events.address[event]!,
      size: events.size[event]!,
      stream: events.stream[event]!,
      pool: events.pool[event]!,
      time: events.timeUs[event]!,
    }));
    const isOom = events.kind[stop] === EventKind.Oom;
    const last = { kind: EventKind.Oom, address: isOom ? events.address[stop]! : 0, size: isOom ? events.size[stop]! : 2 ** 36 };
    const [failure] = failuresOf(process, [...rows, { ...last, time: events.timeUs[stop]! }], Math.floor(stop / 3));
    const trace = readTrace(failure!, process);
    expect(trace.warnings).toEqual([]);
    const before = reconstruct(whole, { stopBefore: stop }).allocator;
    const { allocator: after, differences } = reconstruct(trace, { stopBefore: lastOom(trace) });
    expect(after.allocatedBytes).toBe(before.allocatedBytes);
    if (UNSEEN.has(name)) return;
    expect([differences.addresses, differences.segments]).toEqual([0, 0]);
    expect([after.reservedBytes, after.allocatedBytes]).toEqual([before.reservedBytes, before.allocatedBytes]);
  });
});
