// Takes rows as the supervisor of a run does, until requests fail. The files about the failures must be readable, and explained.
import { CATEGORY_NAMES, EVENT_BYTES, PhaseMark } from '../../src/abi/events.ts';
import { RING_DEVICES } from '../../src/abi/ring.ts';
import { InputError, InvariantError } from '../../src/base/errors.ts';
import { analyzeTrace } from '../../src/report/analysis.ts';
import { explainFailure } from '../../src/report/failure.ts';
import { failureLines } from '../../src/report/words/failure.ts';
import { failureFile } from '../../src/run/failures/failure-file.ts';
import { type Failure, ProcessMemory } from '../../src/run/failures/process-memory.ts';
import { RowChecker } from '../../src/run/rings/row-check.ts';
import type { Trace } from '../../src/trace/trace.ts';
import { readWeir } from '../../src/trace/weir/reader.ts';
import { TestProcess } from '../run/failure-rows.ts';
import { FAILURE_HEAD_BYTES } from './formats/failure.ts';

/** All rows were invalid, or none is about a failure. */
export class NoFailure extends Error {}

export function failRows(input: Uint8Array): void {
  const process = new TestProcess((input[0] ?? 0) % 2 === 0 ? 'weir' : 'pytorch');
  process.other = { total: 2 ** 30, used: 2 ** 29, reserved: 2 ** 28 };
  const stacks = [1, 2, 3].map((line) => process.stack('f', line));
  const strings = [0, ...Object.values(PhaseMark).map((text) => process.symbols.internString(text))];
  const textOf = (text: number) => process.symbols.strings[text] ?? '';
  const memory = new ProcessMemory(
    (text) => textOf(text).startsWith('weir:'),
    (text) => textOf(text) === PhaseMark.failure,
    1 + ((input[1] ?? 0) % 200),
  );
  const declared = {
    streams: Array.from({ length: RING_DEVICES }, (_, gpu) => process.streamsOf(gpu).length),
    pools: Array.from({ length: RING_DEVICES }, (_, gpu) => process.poolsOf(gpu).length),
    strings,
    stackOf: (stack: number) => stacks[stack] ?? -1,
  };
  const checker = new RowChecker();
  const counts = { damaged: 0, operators: 0, settings: [] };
  const rows = Buffer.from(input.subarray(FAILURE_HEAD_BYTES));
  const piece = (1 + ((input[2] ?? 0) % 100)) * EVENT_BYTES;
  let first: Failure | undefined;
  let last: Failure | undefined;
  for (let at = 0; at < rows.length; at += piece) {
    const part = rows.subarray(at, at + piece);
    memory.take(part.subarray(0, checker.check(part, declared, counts)), (failure) => {
      if (!first) memory.capture(failure);
      first ??= failure;
      last = failure;
    });
  }
  if (!first || !last) throw new NoFailure('no request fails');
  memory.capture(last);
  memory.close();
  for (const failure of new Set([first, last])) explain(readBack(failure, process));
}

function readBack(failure: Failure, process: TestProcess): Trace {
  try {
    const found = readWeir(failureFile(failure, failure.state!, process)).traces.find(({ device }) => device === failure.gpu);
    if (found) return found;
    throw new InvariantError('the file about a failure lacks its GPU');
  } catch (error) {
    throw error instanceof InputError ? new InvariantError(`the file about a failure cannot be read: ${error.message}`) : error;
  }
}

function explain(trace: Trace): void {
  const facts = explainFailure(trace);
  if (!facts) throw new InvariantError('the file about a failure has no failure');
  const sum = CATEGORY_NAMES.reduce((total, name) => total + facts.categories[name], 0);
  if (sum !== facts.live) throw new InvariantError(`the categories add up to ${sum}, and ${facts.live} are live`);
  const wrong = failureLines(facts, 'who', 'file').find((line) => /NaN|undefined|Infinity|-\d/.test(line));
  // `weir analyze` replays every file, the explanation only those of which it helps.
  analyzeTrace(trace, { allocators: [], findSmallest: false, findRecordedSmallest: false });
  if (wrong !== undefined) throw new InvariantError(`no such figure: ${wrong}`);
}
