// Failures of whole runs: many of them, in many processes, of threads at once, with explanations that do not end.
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { CATEGORY_NAMES, PhaseMark } from '../../src/abi/events.ts';
import { MIB } from '../../src/base/bytes.ts';
import { explainFailure } from '../../src/report/failure.ts';
import { type FailureOptions, FailureWatch } from '../../src/run/failures/failure-watch.ts';
import { LiveTable } from '../../src/run/failures/live-table.ts';
import { OtherMemoryWatch } from '../../src/run/failures/other-memory-watch.ts';
import type { ProcessRecording } from '../../src/run/rings/process-recording.ts';
import { EventKind, type Trace } from '../../src/trace/trace.ts';
import { readWeir } from '../../src/trace/weir/reader.ts';
import { ROOT } from '../support/command.ts';
import { rowsOf, TestProcess, type TestRow } from './failure-rows.ts';

const BASE = 0x7f00_0000_0000;
/** The thread as it is built: sources of threads cannot be loaded here. */
const SCRIPT = new URL('dist/run/failures/failure-worker.js', ROOT);
let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'weir-failures-'));
});
afterEach(() => {
  rmSync(folder, { recursive: true });
  vi.restoreAllMocks();
});

/** Processes that fail, and what the watch says about it. */
class Run {
  readonly told: string[] = [];
  readonly watch: FailureWatch;

  constructor(options: Partial<FailureOptions> = {}) {
    this.watch = new FailureWatch({
      folder,
      keepsTraces: false,
      say: (line) => this.told.push(line),
      trouble: (line) => this.told.push(line),
      otherMemory: () => undefined,
      hostMemory: () => undefined,
      limits: { script: SCRIPT },
      ...options,
    });
  }

  process(
    pid: number,
    rank = -1,
    reservedNow = 0,
  ): { rows: (rows: readonly TestRow[]) => void; recording: ProcessRecording; job: TestProcess } {
    const job = new TestProcess();
    const recording = {
      owner: { pid, rank },
      file: { path: undefined },
      symbols: job.symbols,
      meta: {},
      allSettings: job.settings,
      streamsOf: (gpu: number) => job.streamsOf(gpu).map(BigInt),
      poolsOf: (gpu: number) => job.poolsOf(gpu),
      gauges: new Map([[0, { total: 1000 * MIB, limit: 0, reserved: reservedNow }]]),
      dropped: 0,
      counts: { damaged: 0 },
      isFinished: false,
      textOf: (text: number) => job.symbols.strings[text] ?? '',
    } as unknown as ProcessRecording;
    return { rows: (rows) => this.watch.rows(recording, rowsOf(rows)), recording, job };
  }
}

const held = (count: number): TestRow[] => [
  { kind: EventKind.Reserved, size: count * MIB },
  ...Array.from({ length: count }, (_, index) => ({ kind: EventKind.Alloc, address: BASE + index * MIB, size: MIB })),
];
const oom = (asked = 900, deviceFree = 5): TestRow => ({ kind: EventKind.Oom, address: deviceFree * MIB, size: asked * MIB });
const read = (name: string): Trace => readWeir(readFileSync(join(folder, name))).traces[0]!;
const files = () =>
  readdirSync(folder)
    .filter((name) => name.endsWith('.weir'))
    .sort();

/** A thread that posts these messages and never ends. */
function endlessThread(...messages: unknown[]): URL {
  const path = join(folder, 'endless.mjs');
  const posts = messages.map((message) => `parentPort.postMessage(${JSON.stringify(message)});`).join('');
  writeFileSync(path, `import { parentPort } from 'node:worker_threads'; ${posts} for (;;);`);
  return pathToFileURL(path);
}

describe('an explanation that does not end', () => {
  it('is cut, and the file is there with what is live', async () => {
    const run = new Run({ limits: { script: endlessThread(), mostMs: 300 } });
    run.process(7).rows([...held(3), oom()]);
    await run.watch.finish();
    expect(run.told).toEqual([
      'out of memory: process 7, GPU 0: a request for 900 MiB failed',
      '  who held the memory is not known here: the explanation was cut after 1 s',
      `  next: weir analyze ${join(folder, 'oom.7.weir')}`,
    ]);
    expect(explainFailure(read('oom.7.weir'))).toMatchObject({ live: 3 * MIB, asked: 900 * MIB });
  });

  it('still tells what was found before', async () => {
    const facts = (() => {
      const run = new Run();
      run.process(8).rows([...held(3), oom()]);
      return explainFailure(read('oom.8.weir'));
    })();
    const run = new Run({ limits: { script: endlessThread({ task: 0, facts }), mostMs: 1500 } });
    run.process(7).rows([...held(3), oom()]);
    await run.watch.finish();
    expect(run.told).toContainEqual(expect.stringContaining('in use: 3 MiB, reserved: 3 MiB'));
    expect(run.told).toContainEqual('  other settings were not tried: the explanation was cut after 2 s');
  });

  it('ends at once with a signal, and those that come later too', async () => {
    const run = new Run({ limits: { script: endlessThread(), mostMs: 600_000 } });
    const stop = new AbortController();
    run.process(7).rows([...held(3), oom()]);
    run.watch.look();
    run.watch.look();
    run.process(8).rows([...held(3), oom()]);
    const finished = run.watch.finish(stop.signal);
    stop.abort();
    await finished;
    expect(run.told.filter((line) => line.startsWith('out of memory'))).toHaveLength(2);
    expect(run.told[1]).toBe('  who held the memory is not known here: the explanation was cut by a signal');
    expect(files()).toEqual(['oom.7.weir', 'oom.8.weir']);
  });
});

describe('many failures', () => {
  it('of one process copy what is live for the first and the last only', async () => {
    const copies = vi.spyOn(LiveTable.prototype, 'copy');
    const run = new Run();
    const job = run.process(7);
    // More than a window, so that there is a table to copy.
    job.rows(held(20_000));
    for (let turn = 0; turn < 200; turn++)
      job.rows([oom(100 + turn), { kind: EventKind.Alloc, address: 2 ** 41, size: MIB }, oom(500 + turn)]);
    expect(copies).toHaveBeenCalledTimes(1);
    await run.watch.finish();
    expect(copies).toHaveBeenCalledTimes(2);
    expect(files()).toEqual(['oom.7.last.weir', 'oom.7.weir']);
    expect(explainFailure(read('oom.7.weir'))).toMatchObject({ asked: 100 * MIB, live: 20_000 * MIB });
    expect(explainFailure(read('oom.7.last.weir'))).toMatchObject({ asked: 699 * MIB, live: 20_001 * MIB });
  });

  it('leave the last one as it was, however much the process does afterwards', async () => {
    const run = new Run();
    const job = run.process(7);
    job.rows([...held(10), oom(), oom(800)]);
    for (let turn = 0; turn < 5; turn++)
      job.rows(
        Array.from({ length: 9000 }, (_, index) => ({ kind: EventKind.Alloc, address: 2 ** 41 + index * 512 + turn * 2 ** 30, size: 512 })),
      );
    await run.watch.finish();
    expect(explainFailure(read('oom.7.last.weir'))).toMatchObject({ asked: 800 * MIB, live: 10 * MIB });
  });

  it('end with the request that failed, if little came after it', async () => {
    const run = new Run();
    run.process(7).rows([...held(10), oom(), oom(800), { kind: EventKind.FreeCompleted, address: BASE, size: MIB }]);
    await run.watch.finish();
    const { events } = read('oom.7.last.weir');
    expect(events.kind[events.count - 1]).toBe(EventKind.Oom);
  });

  it('of 64 ranks at the same second: a file for each, one line for each, ten for the first', async () => {
    const run = new Run();
    const ranks = Array.from({ length: 64 }, (_, rank) => run.process(100 + rank, rank));
    for (const { rows } of ranks) rows([...held(3), oom()]);
    await run.watch.finish();
    expect(files()).toHaveLength(64);
    expect(run.told.filter((line) => line.startsWith('out of memory: rank'))).toHaveLength(64);
    expect(run.told.filter((line) => line.includes('to make it fit'))).toHaveLength(1);
    expect(run.watch.reportOf(ranks[63]!.recording)).toMatchObject({ count: 1, files: [join(folder, 'oom.63.163.weir')] });
  });

  it('of two threads at once share what the process says afterwards', async () => {
    const run = new Run();
    const { rows, job } = run.process(7);
    const category = { kind: EventKind.Category, detail: CATEGORY_NAMES.indexOf('parameter') };
    const between = { address: BASE + 50 * MIB, size: MIB };
    rows([
      ...held(4),
      oom(),
      { kind: EventKind.Alloc, ...between },
      oom(901),
      { ...category, address: BASE },
      { ...category, address: between.address },
      { kind: EventKind.Mark, detail: job.symbols.internString(PhaseMark.failure) },
    ]);
    await run.watch.finish();
    expect(explainFailure(read('oom.7.weir'))).toMatchObject({ live: 4 * MIB, categories: { parameter: MIB } });
    expect(explainFailure(read('oom.7.last.weir'))).toMatchObject({ live: 5 * MIB, categories: { parameter: 2 * MIB } });
  });
});

describe('names of files', () => {
  it('are not those of another container, whose processes have the same numbers', async () => {
    const runs = [new Run(), new Run(), new Run()];
    for (const [index, run] of runs.entries()) run.process(1, 0).rows([...held(index + 1), oom(), oom(901)]);
    for (const run of runs) await run.watch.finish();
    expect(files()).toEqual(['', '-2', '-3'].flatMap((again) => ['.last', ''].map((last) => `oom.0.1${again}${last}.weir`)).sort());
    expect(['', '-2', '-3'].map((again) => explainFailure(read(`oom.0.1${again}.weir`))!.live)).toEqual([MIB, 2 * MIB, 3 * MIB]);
  });
});

describe('memory that is not PyTorch’s', () => {
  it('is of the moment of the failure: total = free + reserved + others', async () => {
    // After the failure the process gave everything back.
    const other = new OtherMemoryWatch({}, async () => undefined);
    const run = new Run({ otherMemory: (process, gpu, moment) => other.of(process, gpu, moment) });
    run.process(7, -1, 0).rows([...held(700), oom(900, 50), { kind: EventKind.Reserved, size: 0 }]);
    await run.watch.finish();
    const facts = explainFailure(read('oom.7.weir'))!;
    expect(facts).toMatchObject({ reserved: 700 * MIB, deviceFree: 50 * MIB, other: { total: 250 * MIB } });
    expect(facts.deviceFree + facts.reserved! + facts.other!.total).toBe(facts.deviceBytes);
  });
});
