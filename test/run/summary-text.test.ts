// The summary of a run of very many processes: its last line can still be read, and typed.
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { Recorder } from '../../src/run/rings/recorder.ts';
import { TraceFile } from '../../src/run/rings/trace-file.ts';
import { formatSummary } from '../../src/run/summary/summary-text.ts';
import { EventKind } from '../../src/trace/trace.ts';
import { newRing } from './random-job.ts';

const root = mkdtempSync(join(tmpdir(), 'weir-summary-'));
afterAll(() => rmSync(root, { recursive: true }));

async function linesOf(processes: number): Promise<string[]> {
  const folder = join(root, String(processes));
  mkdirSync(folder);
  const recorder = new Recorder({
    folder,
    fileFor: ({ pid }) => new TraceFile(join(folder, `${pid}.weir`), false),
    recordingFor: () => ({ meta: {}, settings: new Map(), mostEvents: 1e9, whatIfEvents: 1e9 }),
    onTrouble() {},
  });
  for (let index = 0; index < processes; index++) newRing(folder, 1000 + index).put({ kind: EventKind.Alloc, address: 2 ** 40, size: 512 });
  await recorder.finish();
  return formatSummary({
    allocator: 'pytorch',
    command: ['train'],
    end: { code: 0, signal: null },
    wallMs: 1,
    limit: undefined,
    processes: recorder.processes,
    idleProcesses: 0,
    whatIf: new Map(),
    keepsTraces: true,
    recorderMs: 1,
    refusals: [],
  });
}

describe('the recordings to look at next', () => {
  it('are named, each', async () => {
    const lines = await linesOf(3);
    expect(lines.at(-2)).toBe(`next: weir analyze ${[1000, 1001, 1002].map((pid) => join(root, '3', `${pid}.weir`)).join(' ')}`);
  });

  it('are counted if they are too many for a line', async () => {
    const lines = await linesOf(100);
    expect(lines.at(-2)).toBe(`next: weir analyze ${join(root, '100/1000.weir')}  # the first of 100 recordings`);
    expect(lines.at(-1)).toBe(`      weir serve ${join(root, '100/1000.weir')} --open`);
  });
});
