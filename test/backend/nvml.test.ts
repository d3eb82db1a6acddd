// NVIDIA's management library through a stand-in, and what the supervisor makes of it.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, it } from 'vitest';
import { openNvml } from '../../src/backend/nvml.ts';
import { OtherMemoryWatch, visiblePlaces } from '../../src/run/failures/other-memory-watch.ts';
import type { ProcessRecording } from '../../src/run/rings/process-recording.ts';
import { otherMemoryFrom, otherParts } from '../../src/trace/other-memory.ts';
import { ROOT } from '../support/command.ts';

const folder = mkdtempSync(join(tmpdir(), 'weir-nvml-'));
afterAll(() => rmSync(folder, { recursive: true }));
const library = join(folder, 'libnvidia-ml.so.1');
const source = new URL('test/backend/nvml.c', ROOT).pathname;
const isBuilt = spawnSync('cc', ['-shared', '-fPIC', '-Wall', '-Werror', '-o', library, source]).status === 0;
const reason = isBuilt ? '' : ' (skipped: no C compiler)';

function processWith(pid: number, gauges: Record<string, number>): ProcessRecording {
  return { owner: { pid }, isFinished: false, gauges: new Map([[0, gauges]]) } as unknown as ProcessRecording;
}

describe.skipIf(!isBuilt)(`the management library${reason}`, () => {
  it('tells memory of GPUs and processes', async () => {
    const nvml = (await openNvml(library))!;
    expect(nvml.gpus).toEqual([{ uuid: 'GPU-0-abc' }, { uuid: 'GPU-1-abc' }]);
    expect(nvml.memoryOf(0)).toEqual({ total: 1000, free: 300, processes: new Map([[process.pid, 500]]) });
    expect(nvml.memoryOf(1)).toEqual({ total: 1000, free: 900, processes: new Map() });
    expect(nvml.memoryOf(2)).toBeUndefined();
  });

  it('divides what is not PyTorch’s, keeps the peak, and takes the word of the driver at a failure', async () => {
    const watch = new OtherMemoryWatch({}, () => openNvml(library));
    const own = processWith(process.pid, { total: 1000, reserved: 400 });
    watch.look([own]);
    while (watch.of(own, 0, undefined) === undefined) {
      await sleep(10);
      watch.look([own]);
    }
    expect(watch.of(own, 0, undefined)).toEqual({ total: 1000, used: 700, reserved: 400, process: 500 });
    expect(otherParts(watch.peakOf(own, 0)!)).toEqual({ total: 300, own: 100, others: 200 });
    // At a failure, 50 were free and 350 reserved, whatever is reserved now.
    const moment = watch.of(own, 0, { deviceFree: 50, reserved: 350 })!;
    expect(moment).toEqual({ total: 1000, used: 950, reserved: 350, process: 450 });
    expect(otherParts(moment)).toEqual({ total: 600, own: 100, others: 500 });
    expect(watch.peakOf(processWith(1, {}), 0)).toBeUndefined();
  });
});

describe('without a management library', () => {
  it('nothing is known, and nothing fails', async () => {
    expect(await openNvml(join(folder, 'nothing.so'))).toBeUndefined();
    const watch = new OtherMemoryWatch({}, () => openNvml(join(folder, 'nothing.so')));
    const own = processWith(process.pid, { total: 1000, reserved: 400 });
    for (let round = 0; round < 3; round++) {
      watch.look([own]);
      await sleep(5);
    }
    expect([watch.of(own, 0, undefined), watch.peakOf(own, 0)]).toEqual([undefined, undefined]);
    // The driver's word at a failure is enough to know what is not PyTorch's.
    expect(watch.of(own, 0, { deviceFree: 100, reserved: 350 })).toEqual({ total: 1000, used: 900, reserved: 350 });
    expect(watch.of(own, 0, { deviceFree: 2000, reserved: 0 })).toBeUndefined();
    expect(watch.of(own, 3, { deviceFree: 100, reserved: 0 })).toBeUndefined();
  });
});

describe('a management library that tells more free memory than there is', () => {
  it('tells nothing', async () => {
    const memory = { total: 1000, free: 1000, processes: new Map<number, number>() };
    const nvml = { gpus: [{ uuid: 'GPU-0-abc' }], memoryOf: () => memory };
    const watched = async () => {
      const watch = new OtherMemoryWatch({}, () => Promise.resolve(nvml));
      const own = processWith(2 ** 30, { total: 1000, reserved: 400 });
      watch.look([own]);
      await Promise.resolve();
      watch.look([own]);
      return [watch.of(own, 0), watch.peakOf(own, 0)];
    };
    expect(await watched()).toEqual(Array(2).fill({ total: 1000, used: 0, reserved: 0 }));
    memory.free = 1001;
    expect(await watched()).toEqual([undefined, undefined]);
  });
});

describe('GPUs of a process', () => {
  const nvml = { gpus: [{ uuid: 'GPU-0-abc' }, { uuid: 'GPU-1-abc' }, { uuid: 'GPU-2-abc' }] };
  it.each([
    [undefined, [0, 1, 2]],
    ['1', [1]],
    ['2, 0', [2, 0]],
    ['GPU-1,2', [1, 2]],
    ['0,7,1', [0]],
    ['MIG-abc', undefined],
    ['', undefined],
    ['-1', undefined],
  ])('CUDA_VISIBLE_DEVICES=%s are %j', (visible, places) => {
    // No process has this number.
    expect(visiblePlaces(2 ** 30, nvml, visible === undefined ? {} : { CUDA_VISIBLE_DEVICES: visible })).toEqual(places);
  });

  it('figures of a file are checked', () => {
    expect(otherMemoryFrom({ total: 3, used: 2, reserved: 1, process: 'x' })).toEqual({ total: 3, used: 2, reserved: 1 });
    for (const wrong of [null, 7, {}, { total: 1, used: -1, reserved: 0 }]) expect(otherMemoryFrom(wrong)).toBeUndefined();
  });
});
