// Worker thread that replays the recording of one process through the allocators it did not run on.
import { closeSync, openSync, readSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import { settingsFromRecording } from '../../allocator/pytorch/settings.ts';
import { type AllocatorChoice, chooseAllocators, pytorchChoice } from '../../allocator/registry.ts';
import { SimulatedBackend } from '../../backend/simulated.ts';
import { InputError } from '../../base/errors.ts';
import { reconstruct } from '../../replay/reconstruct.ts';
import { replay } from '../../replay/replay.ts';
import { summarizeTrace } from '../../trace/summary.ts';
import type { Trace } from '../../trace/trace.ts';
import { readWeir } from '../../trace/weir/reader.ts';
import type { GpuWhatIf, WhatIfMessage, WhatIfResult, WhatIfTask } from './what-if.ts';

const READ_AT_ONCE = 64 * 1024 * 1024;

function tell(message: WhatIfMessage): void {
  parentPort?.postMessage(message);
}

try {
  const { path, bytes } = workerData as WhatIfTask;
  const { traces } = readWeir(readBeginning(path, bytes), { onProgress: (done) => tell({ fraction: done * 0.2 }) });
  const shown = traces.filter((trace) => trace.events.count > 0);
  const gpus = shown.map((trace, index) => whatIf(trace, (done) => tell({ fraction: 0.2 + (0.8 * (index + done)) / shown.length })));
  tell({ gpus });
} catch (error) {
  if (!(error instanceof InputError || error instanceof RangeError)) throw error;
  tell({ problem: error.message });
}

function whatIf(trace: Trace, onProgress: (fraction: number) => void): GpuWhatIf {
  const summary = summarizeTrace(trace);
  const isEngine = summary.recordedAllocator === 'weir' || summary.recordedAllocator === 'gmlake';
  // Only PyTorch's allocator leaves out when the program called empty_cache().
  const whole = isEngine ? undefined : reconstruct(trace, { onProgress: (done) => onProgress(done / 4) });
  const choices = otherChoices(trace, summary.recordedAllocator);
  const { deviceBytes, memoryFraction = 1 } = trace.limits;
  const capacity = deviceBytes === undefined ? undefined : Math.floor(deviceBytes * memoryFraction);
  const results = choices.map((choice, index): WhatIfResult => {
    const run = (bytes: number | undefined) =>
      replay(trace, choice.create, {
        backend: new SimulatedBackend({ capacity: bytes }),
        deviceBytes: bytes,
        emptyCacheBefore: whole?.emptyCacheBefore ?? [],
        onProgress: (done) => onProgress((1 + (3 * (index + done)) / choices.length) / 4),
      });
    const unlimited = run(undefined);
    const limited = capacity !== undefined && unlimited.peakReserved > capacity ? run(capacity) : undefined;
    return {
      allocator: choice.name,
      peakReserved: unlimited.peakReserved,
      driverUs: unlimited.driver.timeUs,
      ooms: capacity === undefined ? null : (limited?.ooms ?? 0),
    };
  });
  const { addresses = 0, segments = 0, outcomes = 0, compared = 0 } = whole?.differences ?? {};
  return {
    gpu: trace.device,
    events: trace.events.count,
    peakLive: summary.peakLive,
    recordedPeakReserved: summary.recordedPeakReserved ?? null,
    replayError: whole ? { compared, differing: addresses + segments + outcomes } : null,
    results,
  };
}

/** What PyTorch would have needed with the settings that the job had, and what the others would. */
function otherChoices(trace: Trace, recorded: string): AllocatorChoice[] {
  const settings = { ...settingsFromRecording(trace.settings), memoryFraction: 1 };
  const choices: AllocatorChoice[] = [
    pytorchChoice('pytorch', { ...settings, expandableSegments: false }),
    pytorchChoice('expandable', { ...settings, expandableSegments: true }),
    ...chooseAllocators('weir'),
  ];
  return choices.filter(({ kind }) => kind !== recorded);
}

/** The first so many bytes: the beginning of a recording is a recording. */
function readBeginning(path: string, length: number): Uint8Array {
  const bytes = Buffer.allocUnsafeSlow(length);
  const file = openSync(path, 'r');
  try {
    let read = 0;
    while (read < length) {
      const count = readSync(file, bytes, read, Math.min(READ_AT_ONCE, length - read), read);
      if (count === 0) break;
      read += count;
    }
    return bytes.subarray(0, read);
  } finally {
    closeSync(file);
  }
}
