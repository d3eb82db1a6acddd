// An open recording: answers every question of the page. Runs in a worker of the page or of the server.
import { UsageError } from '../base/errors.ts';
import { analysisSteps } from '../report/analysis.ts';
import { historyChoices } from '../report/what-if.ts';
import type { Recording } from '../trace/trace.ts';
import type { AnalysisView } from './analysis-view.ts';
import { GpuView } from './gpu-view.ts';
import { rankSummaries } from './job-rank.ts';
import { packSteps } from './packing.ts';
import { planView } from './plan-view.ts';
import type { Calls, Method, ProgressNote, Question, SourceInfo } from './protocol.ts';

export class Session {
  private readonly recording: Recording;
  private readonly name: string;
  private readonly views = new Map<number, GpuView>();

  constructor(recording: Recording, name: string) {
    this.recording = recording;
    this.name = name;
  }

  answer(question: Question, onProgress: (note: ProgressNote) => void): Calls[Method]['answer'] {
    const steps = this.steps(question, onProgress);
    for (;;) {
      const step = steps.next();
      if (step.done) return step.value;
    }
  }

  /** The same in steps, if it takes long. Between two steps the caller may give up; `onProgress` may also throw. */
  *steps(question: Question, onProgress: (note: ProgressNote) => void): Generator<void, Calls[Method]['answer']> {
    if (question.method === 'describe') return this.describe();
    if (question.method === 'ranks') return rankSummaries(this.recording);
    if (question.method === 'analyze') return yield* this.analyze(question, onProgress);
    if (question.method === 'plan') {
      yield;
      return planView(this.trace(question.gpu));
    }
    if (question.method === 'pack') {
      const { name, gpu, capacity } = question;
      return yield* packSteps(this.recording, { name, keepsPaths: false, gpus: [gpu], capacity }, onProgress);
    }
    const view = this.view(question.gpu);
    switch (question.method) {
      case 'run':
        yield;
        return view.run(question.run, (fraction) => onProgress({ fraction, doing: `replaying ${question.run}` }));
      case 'timeline':
        return view.timeline(question);
      case 'map':
        return view.map(question);
      case 'legend':
        return view.legend(question.colour);
      case 'ruler':
        return view.stack.ruler();
      case 'bands':
        return view.stack.bands(question.by);
      case 'stack':
        return view.stack.columns(question.by, question.window);
      case 'stackAt':
        return view.stackAt(question);
      case 'moment':
        return view.moment(question);
      case 'flame':
        return view.flame(question);
      case 'blockAt':
        return view.blockAt(question);
      case 'block':
        return view.block(question.run, question.allocation);
      case 'misfits':
        return view.misfits();
      case 'strip':
      case 'besideStrip':
        yield;
        return view.strip(question, (fraction) => onProgress({ fraction, doing: `replaying ${question.run}` }));
      case 'hole':
      case 'besideHole':
        return view.hole(question);
      case 'search':
        return view.search(question);
      case 'values':
        throw new UsageError('this recording has no other values; weir fit --serve shows runs of other values');
      default:
        throw new UsageError(`there is no question '${(question as { method: string }).method}'`);
    }
  }

  private describe(): SourceInfo {
    return {
      name: this.name,
      format: this.recording.format,
      gpus: this.recording.traces.map((trace) => this.view(trace.device).describe()),
    };
  }

  /** Sends the verdict first, then each allocator when it is done. */
  private *analyze(
    { gpu, capacity, isHistory }: { readonly gpu: number } & Calls['analyze']['ask'],
    onProgress: (note: ProgressNote) => void,
  ): Generator<void, AnalysisView> {
    yield;
    let latest: AnalysisView | undefined;
    const steps = analysisSteps(this.trace(gpu), {
      capacity,
      allocators: isHistory ? historyChoices() : undefined,
      withHistory: false,
      source: this.name,
      onProgress: (fraction, doing) => onProgress({ fraction, doing, partial: latest }),
    });
    for (;;) {
      const step = steps.next();
      latest = { file: this.name, analysis: step.value, isComplete: step.done === true };
      if (step.done) return latest;
      onProgress({ fraction: 0, doing: 'comparing allocators', partial: latest });
      yield;
    }
  }

  private view(gpu: number): GpuView {
    let view = this.views.get(gpu);
    if (!view) {
      view = new GpuView(this.trace(gpu));
      this.views.set(gpu, view);
    }
    return view;
  }

  private trace(gpu: number): Recording['traces'][number] {
    const trace = this.recording.traces.find((candidate) => candidate.device === gpu);
    if (!trace) throw new UsageError(`the recording has no events of GPU ${gpu}`);
    return trace;
  }
}
