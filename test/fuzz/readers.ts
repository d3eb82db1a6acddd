// What the commands do with a file after unpacking it, without the files and the terminal around it.
import { InvariantError } from '../../src/base/errors.ts';
import { readShape } from '../../src/base/shape.ts';
import { parsePlan, readPlan } from '../../src/plan/files/plan-file.ts';
import { type PlanInput, planInputOf, readPlanText, swapStepFrom, verifyPlanOn } from '../../src/plan/files/plan-input.ts';
import { planOffsets } from '../../src/plan/offsets/planner.ts';
import { verifyOffsets } from '../../src/plan/offsets/verifier.ts';
import { findStep } from '../../src/plan/steps/step-plan.ts';
import { H200_COPIES } from '../../src/plan/swaps/copy-costs.ts';
import { planProfile } from '../../src/plan/swaps/live/planner.ts';
import { readSwapProfile } from '../../src/plan/swaps/live/profile.ts';
import { verifySwapPlan } from '../../src/plan/swaps/live/verifier.ts';
import { planSwapStep } from '../../src/plan/swaps/planner.ts';
import { analyzeTrace } from '../../src/report/analysis.ts';
import { analysisJson } from '../../src/report/json.ts';
import { distance, NumberReader, readText } from '../../src/run/check/number-comparison.ts';
import { NO_DEMAND } from '../../src/trace/assemble.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { checkQuestion } from '../../src/view/questions.ts';
import { corpusText } from './corpus.ts';

const decoder = new TextDecoder();
/** Cuts lines and characters in two. */
const NUMBERS_PIECE = 100;

export function readRecordingOnly(bytes: Uint8Array): void {
  readRecording(bytes);
}

/** The input of `weir plan`: a text format by its beginning, anything else is a recording. */
function planInput(bytes: Uint8Array): PlanInput | undefined {
  const isBinary = bytes[0] === undefined || bytes[0] >= 0x80;
  const text = isBinary ? undefined : readPlanText(decoder.decode(bytes));
  if (!text) readRecording(bytes);
  return text;
}

/** Reads the input of `weir plan`, and finds the step in it. */
export function readPlanInput(bytes: Uint8Array): void {
  const input = planInput(bytes);
  if (input?.kind === 'operations') findStep(input.ops);
  if (input?.kind === 'accesses') swapStepFrom(input.recording);
}

let judged: Readonly<Record<'offsets' | 'step' | 'swaps', PlanInput>> | undefined;

/** Reads a plan to judge it, judges it against the file of the corpus that it was made for, and reads it to use it. */
export function readPlanFile(bytes: Uint8Array): void {
  judged ??= {
    offsets: readPlanText(corpusText('csv', 'buffers.bin'))!,
    step: readPlanText(corpusText('malloc', 'steps.bin'))!,
    swaps: readPlanText(corpusText('accesses', 'training.bin'))!,
  };
  const text = decoder.decode(bytes);
  const plan = parsePlan(text);
  verifyPlanOn(plan, judged[plan.kind]);
  readPlan(text);
}

/** A profile or a report, told apart by a key that only profiles have. */
export function readProfile(bytes: Uint8Array): void {
  const data: unknown = JSON.parse(decoder.decode(bytes));
  const isReport = typeof data === 'object' && data !== null && !('ticks' in data);
  if (isReport) readShape('SwapReport', data);
  else readSwapProfile(data);
}

/** Plans swaps as the supervisor of a run does. */
export function planProfileText(bytes: Uint8Array): void {
  const profile = readSwapProfile(JSON.parse(decoder.decode(bytes)));
  const [fault] = verifySwapPlan(profile, planProfile(profile, { budgetMs: 0 }));
  if (fault) throw new InvariantError(`the swap plan is wrong: ${fault.message}`);
}

export function planRecording(bytes: Uint8Array): void {
  for (const trace of readRecording(bytes).traces) {
    if (trace.warnings.some(({ code }) => code === NO_DEMAND)) continue;
    const input = planInputOf(trace, false);
    if (input.kind === 'operations') findStep(input.ops);
    const accesses = planInputOf(trace, true);
    if (accesses.kind === 'accesses') swapStepFrom(accesses.recording);
  }
}

export function planBuffers(bytes: Uint8Array): void {
  const input = planInput(bytes);
  if (input?.kind !== 'buffers') return;
  const plan = planOffsets(input.buffers, { budgetMs: 0 });
  const [fault] = verifyOffsets(input.buffers, plan);
  if (fault) throw new InvariantError(`the plan is wrong: ${fault.message}`);
}

export function planSwapsOf(bytes: Uint8Array): void {
  const input = planInput(bytes);
  if (input?.kind !== 'accesses') return;
  planSwapStep(swapStepFrom(input.recording), { costs: H200_COPIES, budgetMs: 0, offsetsBudgetMs: 0 });
}

/** The output of a job, compared by its numbers with `weir run --check`. */
export function readNumbers(bytes: Uint8Array): void {
  for (const pattern of [undefined, /loss (\S+)/, /acc/]) {
    const reader = new NumberReader(pattern);
    for (let from = 0; from < bytes.length; from += NUMBERS_PIECE) reader.push(bytes.subarray(from, from + NUMBERS_PIECE));
    const found = reader.finish();
    distance(found, found);
  }
  readText(bytes);
}

/** A question of the page to its server. */
export function readQuestion(bytes: Uint8Array): void {
  checkQuestion(JSON.parse(decoder.decode(bytes)));
}

/** The first part of `weir analyze`: what happened, without other allocators. */
export function analyzeRecording(bytes: Uint8Array): void {
  for (const trace of readRecording(bytes).traces) {
    if (trace.warnings.some(({ code }) => code === NO_DEMAND)) continue;
    JSON.stringify(analysisJson(analyzeTrace(trace, { allocators: [], findSmallest: false, findRecordedSmallest: false }), 'file'));
  }
}
