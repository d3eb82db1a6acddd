// Worker thread that replays the recording of one process through the allocators it did not run on.
import { closeSync, openSync, readSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import { InputError } from '../../base/errors.ts';
import { readWeir } from '../../trace/weir/reader.ts';
import { otherAllocators } from './other-allocators.ts';
import type { WhatIfMessage, WhatIfTask } from './what-if.ts';

const READ_AT_ONCE = 64 * 1024 * 1024;

function tell(message: WhatIfMessage): void {
  parentPort?.postMessage(message);
}

try {
  const { path, bytes } = workerData as WhatIfTask;
  const { traces } = readWeir(readBeginning(path, bytes), { onProgress: (done) => tell({ fraction: done * 0.2 }) });
  const shown = traces.filter((trace) => trace.events.count > 0);
  const gpus = shown.map((trace, index) =>
    otherAllocators(trace, (done) => tell({ fraction: 0.2 + (0.8 * (index + done)) / shown.length })),
  );
  tell({ gpus });
} catch (error) {
  if (!(error instanceof InputError || error instanceof RangeError)) throw error;
  tell({ problem: error.message });
}

/** Any beginning of a .weir file is a readable recording. */
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
