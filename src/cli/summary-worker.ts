// Worker thread that reads one recording at a time and keeps only its summary, for the overview of a job.
import { parentPort } from 'node:worker_threads';
import { InputError } from '../base/errors.ts';
import type { RankNote } from '../view/job-protocol.ts';
import { rankSummaries } from '../view/job-rank.ts';
import { loadRecording } from './input.ts';

export interface SummaryTask {
  readonly source: number;
  readonly path: string;
}

parentPort?.on('message', async ({ source, path }: SummaryTask) => {
  const answer = (note: RankNote) => parentPort?.postMessage(note);
  try {
    answer({ source, ranks: rankSummaries(await loadRecording(path, { update: () => {}, clear: () => {} })) });
  } catch (error) {
    if (error instanceof InputError) answer({ source, problem: error.message });
    else answer({ source, problem: `${path}: ${error instanceof Error ? error.message : String(error)}` });
  }
});
