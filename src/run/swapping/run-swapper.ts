// Swapping in the supervisor of a run: swap plans for its processes, and their reports when they end.
// Planning happens in a thread (swap-worker.ts).
import { readdirSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { EXCHANGE_FILES, type SwapReport } from '../../abi/exchange.ts';
import { formatTimes } from '../../base/counts.ts';
import { dismiss } from '../../base/thread.ts';
import type { ProcessRecording } from '../rings/process-recording.ts';
import { pidIn, readSwapReport } from './swap-watch.ts';
import type { SwapAnswer } from './swap-worker.ts';

export interface SwapVoice {
  say(sentence: string): void;
}

export class RunSwapper {
  private readonly folder: string;
  private readonly worker: Worker;
  private readonly reports = new Map<number, SwapReport>();

  constructor(folder: string, voice: SwapVoice) {
    this.folder = folder;
    this.worker = new Worker(new URL('./swap-worker.js', import.meta.url), { workerData: { directory: folder } });
    // Training never depends on a swap plan.
    this.worker.on('error', (error) => voice.say(`no more swap plans are made, training goes on: ${error.message}`));
    this.worker.on('message', (answer: SwapAnswer) => {
      voice.say(
        answer.kind === 'planned'
          ? `process ${answer.pid}: ${answer.words} (${formatTimes(answer.moves, 'tensor', 'tensors')})`
          : `process ${answer.pid}: no swap plan, training goes on without: ${answer.reason}`,
      );
    });
    this.worker.unref();
  }

  /** The report of a process; undefined if it ended without one. */
  reportOf(process: ProcessRecording): SwapReport | undefined {
    return this.reports.get(process.owner.pid);
  }

  /** Ends planning and reads the reports, before the folder is removed. */
  finish(): void {
    dismiss(this.worker);
    this.readReports();
  }

  /** Reads the reports that are there. A process writes its own when it ends, and when it asks for a summary. */
  readReports(): void {
    for (const name of readdirSync(this.folder)) {
      const pid = pidIn(name, EXCHANGE_FILES.SwapReport);
      const report = pid === undefined ? undefined : readSwapReport(this.folder, pid);
      if (pid !== undefined && report) this.reports.set(pid, report);
    }
  }
}
