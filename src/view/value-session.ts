// Runs of other values, as the page shows them: each synthesised run is a recording of its own that answers every question,
// and one question more asks for the largest value that fits.
import { type AllocatorChoice, chooseAllocators } from '../allocator/registry.ts';
import { UsageError } from '../base/errors.ts';
import { type FitModel, HARMLESS, learnFit } from '../fit/model.ts';
import type { Point } from '../fit/monomials.ts';
import { type FitRuns, predictOn, predictPeak, replaysOf } from '../fit/prediction.ts';
import { type Line, MOST_VALUE } from '../fit/search.ts';
import type { FitRun } from '../fit/sequence.ts';
import { labelledSites } from '../report/fit-sites.ts';
import { functionWords, growthTitle, learnedSentences, pointWords, swapSentences } from '../report/words/fit.ts';
import type { Calls, Method, ProgressNote, Question } from './protocol.ts';
import { Session } from './session.ts';
import type { ValueChoice, ValueInfo, ValueTable } from './value-table.ts';

/** Each holds a run and its replays. */
const MOST_SESSIONS = 3;
const MOST_SITES = 6;
/** A slider goes to this multiple of the largest value that was tried, or of the largest that fits. */
const BEYOND_TRIED = 4;
const BEYOND_FITTING = 1.25;

export interface ValueSource {
  readonly runs: readonly FitRun[];
  readonly names: readonly string[];
  readonly gpuBytes: number;
  readonly multiple: number;
}

export class ValueSession {
  private readonly source: ValueSource;
  private readonly name: string;
  private readonly choices: readonly AllocatorChoice[];
  private readonly sessions = new Map<string, Session>();
  private readonly model: FitModel;
  private made: FitRuns | undefined;

  constructor(source: ValueSource, name: string, allocators: string) {
    this.source = source;
    this.name = name;
    this.choices = chooseAllocators(allocators);
    this.model = learnFit(source.runs);
  }

  *steps(question: Question, onProgress: (note: ProgressNote) => void): Generator<void, Calls[Method]['answer']> {
    const point = this.checked(question.point ?? this.model.template.values);
    if (question.method === 'values') {
      yield;
      return this.table(point, question.gpuBytes, onProgress);
    }
    const session = this.sessionAt(point);
    if (question.method !== 'describe') return yield* session.steps(question, onProgress);
    const described = (yield* session.steps(question, onProgress)) as Calls['describe']['answer'];
    return { ...described, values: this.info(point) };
  }

  private info(point: Point): ValueInfo {
    const { names, gpuBytes, multiple } = this.source;
    const { points } = this.model;
    return {
      names,
      point,
      tried: points,
      gpuBytes,
      multiple,
      most: names.map((_, parameter) => BEYOND_TRIED * Math.max(...points.map((tried) => tried[parameter]!))),
    };
  }

  private table(point: Point, gpuBytes: number, onProgress: (note: ProgressNote) => void): ValueTable {
    const { names, multiple } = this.source;
    const line: Line = { point, parameter: 0, multiple };
    const prediction = predictOn(this.runs, {
      gpuBytes,
      choices: this.choices,
      names,
      line,
      onProgress: (fraction, doing) => onProgress({ fraction, doing }),
    });
    const rows = prediction.rows.map(({ allocator, sure, possible, swap }): ValueChoice => {
      const choice = this.choices.find(({ name }) => name === allocator);
      return {
        allocator,
        sure,
        possible,
        // With swapping there is no replay of the whole run.
        peak: choice && !swap ? predictPeak(this.runs, choice, point) : undefined,
      };
    });
    const fitting = Math.max(...rows.map(({ possible }) => (possible.isBounded ? possible.value : 0)));
    return {
      point,
      gpuBytes,
      rows,
      most: Math.min(MOST_VALUE, Math.max(this.info(point).most[0]!, Math.ceil(fitting * BEYOND_FITTING))),
      growthTitle: growthTitle(prediction),
      sites: labelledSites(this.model.template.trace, prediction.growth)
        .slice(0, MOST_SITES)
        .map(({ label, adds, bytes, allocations, size }) => ({ label, adds, bytes, allocations, grows: functionWords(size, names) })),
      sentences: [...swapSentences(prediction), ...learnedSentences(prediction), ...this.model.warnings],
    };
  }

  private sessionAt(point: Point): Session {
    const key = point.join();
    let session = this.sessions.get(key);
    if (session) this.sessions.delete(key);
    else {
      const made = this.runs.synthesis.at(point, 'upper');
      // A run that nobody has made has no segments, and that is no defect of it.
      const trace = { ...made, warnings: made.warnings.filter(({ code }) => !HARMLESS.includes(code)) };
      session = new Session({ format: 'weir', traces: [trace] }, `${this.name} at ${this.source.names.join(' x ')} ${pointWords(point)}`);
    }
    this.sessions.set(key, session);
    for (const oldest of this.sessions.keys()) {
      if (this.sessions.size <= MOST_SESSIONS) break;
      this.sessions.delete(oldest);
    }
    return session;
  }

  private get runs(): FitRuns {
    this.made ??= replaysOf(this.model);
    return this.made;
  }

  private checked(point: Point): Point {
    const { length } = this.source.names;
    if (point.length !== length) throw new UsageError(`a run has ${length === 1 ? 'one value' : `${length} values`}, not ${point.length}`);
    return point;
  }
}
