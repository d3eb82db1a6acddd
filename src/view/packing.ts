// A recording on its way into a page of one file: as .weir, without the folders of its machine, and with its analyses.
import { stripRecording } from '../report/strip.ts';
import type { Recording } from '../trace/trace.ts';
import { writeWeir } from '../trace/weir/writer.ts';
import type { AnalysisView } from './analysis-view.ts';
import { type RankSummary, rankSummaries } from './job-rank.ts';
import type { ProgressNote } from './protocol.ts';
import { Session } from './session.ts';

/** Plain data: it crosses workers and the network. */
export interface PackedRecording {
  /** A .weir file, not compressed. */
  readonly bytes: Uint8Array;
  readonly ranks: readonly RankSummary[];
  readonly analyses: readonly PackedAnalysis[];
}

export interface PackedAnalysis {
  readonly gpu: number;
  readonly analysis: AnalysisView;
}

export interface PackOptions {
  /** The name in the page. Whoever strips paths gives one without a folder. */
  readonly name: string;
  readonly keepsPaths: boolean;
  /** GPUs to analyse; the page analyses others when they are opened. */
  readonly gpus: readonly number[];
  readonly capacity?: number | undefined;
}

/** Analyses what the page will hold, so that no name can come in from elsewhere. In steps, since it takes seconds. */
export function* packSteps(
  recording: Recording,
  { name, keepsPaths, gpus, capacity }: PackOptions,
  onProgress: (note: ProgressNote) => void,
): Generator<void, PackedRecording> {
  const packed = keepsPaths ? recording : stripRecording(recording);
  const session = new Session(packed, name);
  const analyses: PackedAnalysis[] = [];
  for (const gpu of gpus) {
    const told = ({ fraction, doing }: ProgressNote) => onProgress({ fraction, doing });
    const analysis = (yield* session.steps({ method: 'analyze', gpu, capacity }, told)) as AnalysisView;
    analyses.push({ gpu, analysis });
  }
  yield;
  return { bytes: weirBytes(packed), ranks: rankSummaries(packed), analyses };
}

export function packRecording(recording: Recording, options: PackOptions, onProgress: (note: ProgressNote) => void): PackedRecording {
  const steps = packSteps(recording, options, onProgress);
  for (;;) {
    const step = steps.next();
    if (step.done) return step.value;
  }
}

function weirBytes(recording: Recording): Uint8Array {
  const chunks: Uint8Array[] = [];
  let length = 0;
  writeWeir(recording, (chunk) => {
    chunks.push(chunk.slice());
    length += chunk.length;
  });
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, at);
    at += chunk.length;
  }
  return bytes;
}
