// The facts of a finished run, per process and GPU; summary-text.ts and summary-json.ts render them.

import type { SwapReport } from '../../abi/exchange.ts';
import type { HostMemory, OtherMemory } from '../../trace/trace.ts';
import type { ChildEnd } from '../child/child.ts';
import type { FailureReport } from '../failures/failure-watch.ts';
import type { PlanReport } from '../planning/run-planner.ts';
import type { ProcessRecording } from '../rings/process-recording.ts';
import type { Refusal } from '../rings/recorder.ts';
import type { Gauges } from '../rings/ring-layout.ts';
import type { GpuWhatIf } from './what-if.ts';

export interface RunSummary {
  readonly allocator: string;
  readonly command: readonly string[];
  readonly end: ChildEnd;
  readonly wallMs: number;
  readonly limit: number | undefined;
  readonly processes: readonly ProcessRecording[];
  /** Processes that loaded Weir and used no GPU. */
  readonly idleProcesses: number;
  /** By process: what other allocators would have needed, or why that is unknown. */
  readonly whatIf: ReadonlyMap<ProcessRecording, readonly GpuWhatIf[] | string>;
  /** Undefined: the run was not planned. */
  readonly planner?: { reportOf(process: ProcessRecording, gpu: number): PlanReport | undefined } | undefined;
  /** Undefined: the run did not swap. */
  readonly swapper?: { reportOf(process: ProcessRecording): SwapReport | undefined } | undefined;
  /** Requests that failed. */
  readonly failures?:
    | {
        reportOf(process: ProcessRecording): FailureReport | undefined;
        firstOf(processes: readonly ProcessRecording[]): ProcessRecording | undefined;
      }
    | undefined;
  /** The most memory that was not PyTorch's; undefined of a GPU: unknown. */
  readonly otherMemory?: { peakOf(process: ProcessRecording, gpu: number): OtherMemory | undefined } | undefined;
  /** Pinned host memory; undefined of a process: it has none, or did not say. */
  readonly pinned?: { of(process: ProcessRecording): HostMemory | undefined } | undefined;
  /** Whether recordings outlive the run, so that the summary can name them. */
  readonly keepsTraces: boolean;
  /** Whether operators of some steps were to be recorded. */
  readonly expectsAccesses?: boolean | undefined;
  readonly recorderMs: number;
  readonly refusals: readonly Refusal[];
}

/** The what-if of one GPU; undefined: unknown. */
export function whatIfOf(answer: readonly GpuWhatIf[] | string | undefined, gpu: number): GpuWhatIf | undefined {
  return typeof answer === 'object' ? answer.find((candidate) => candidate.gpu === gpu) : undefined;
}

/** Peak reserved / peak live. */
export function overheadOf(gauges: Gauges): number {
  return gauges.peak_live > 0 ? gauges.peak_reserved / gauges.peak_live : 1;
}

export interface EventCounts {
  /** Taken from the job. */
  readonly recorded: number;
  /** Lost before that. */
  readonly dropped: number;
  /** In the files. */
  readonly written: number;
}

export function eventsOf({ processes }: RunSummary): EventCounts {
  const sum = (of: (process: ProcessRecording) => number) => processes.reduce((total, process) => total + of(process), 0);
  return {
    recorded: sum(({ events }) => events),
    dropped: sum(({ dropped }) => dropped),
    written: sum(({ writtenEvents }) => writtenEvents),
  };
}
