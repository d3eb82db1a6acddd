// Swapping as the parent of a run sees it: plans for the profiles its processes write, and what they report when they end.
import { readdirSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { dismiss } from '../../base/thread.ts';
import type { ProcessRecording } from '../rings/process-recording.ts';
import { readSwapReport, type SwapReport } from './swap-watch.ts';
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
    // The job does not depend on its plans: without them it goes on unswapped.
    this.worker.on('error', (error) => voice.say(`swaps are no longer planned: ${error.message}`));
    this.worker.on('message', (answer: SwapAnswer) => {
      voice.say(
        answer.kind === 'planned'
          ? `process ${answer.pid}: ${answer.words} (${answer.moves} moves a step)`
          : `process ${answer.pid}: its step cannot be planned: ${answer.reason}`,
      );
    });
    this.worker.unref();
  }

  /** What a process counted; undefined if it ended without saying. */
  reportOf(process: ProcessRecording): SwapReport | undefined {
    return this.reports.get(process.owner.pid);
  }

  /** After the job: takes the reports from the folder, which goes. */
  finish(): void {
    dismiss(this.worker);
    for (const name of readdirSync(this.folder)) {
      const pid = Number(/^(\d+)\.swap-report\.json$/.exec(name)?.[1]);
      const report = Number.isNaN(pid) ? undefined : readSwapReport(this.folder, pid);
      if (report) this.reports.set(pid, report);
    }
  }
}
