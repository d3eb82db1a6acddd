// The bytes of a file that should be a plan. The files of `weir verify` are easily swapped,
// so the error says what the file looks like.
import { formatBytes, MIB } from '../../base/bytes.ts';
import { InputError } from '../../base/errors.ts';
import { detectFormat, lookOf, START_OF_PLAN } from '../../trace/detect.ts';
import { looksLikeAccessJson } from './access-inputs.ts';
import { looksLikeAutoSwap } from './autoswap-trace.ts';
import { looksLikeBufferCsv } from './buffer-csv.ts';
import { looksLikeMallocText } from './malloc-text.ts';
import { PLAN_FIRST, type PlanFile, parsePlan } from './plan-file.ts';

/** JavaScript has no longer strings on all machines. */
const MOST_PLAN_BYTES = 500 * MIB;
/** Enough to recognize a file by its beginning. */
const START_BYTES = 4096;

/** Reads a plan to judge it. Throws InputError if the file is something else. */
export function parsePlanBytes(bytes: Uint8Array): PlanFile {
  requirePlan(bytes);
  if (bytes.length > MOST_PLAN_BYTES)
    throw new InputError(`the file is larger than ${formatBytes(MOST_PLAN_BYTES)}, which no plan is; ${PLAN_FIRST}`);
  return parsePlan(new TextDecoder().decode(bytes));
}

/** Refuses a file whose beginning is that of something else. */
export function requirePlan(start: Uint8Array): void {
  const look = otherLookOf(start);
  if (look !== undefined) throw new InputError(`the file ${look}, not a plan; ${PLAN_FIRST}`);
}

export function looksLikePlan(bytes: Uint8Array): boolean {
  return START_OF_PLAN.test(startOf(bytes));
}

/** Refuses a plan where the file that a plan is made from, or checked against, is expected. */
export function refusePlan(bytes: Uint8Array, wants: 'plan' | 'verify'): void {
  if (!looksLikePlan(bytes)) return;
  throw new InputError(
    wants === 'plan'
      ? 'the file is a plan already; weir verify PLAN FILE checks it'
      : `the file is a plan, not what the plan is for; ${PLAN_FIRST}`,
  );
}

function startOf(bytes: Uint8Array): string {
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes.subarray(0, START_BYTES));
}

/** What the file is if it is no plan, as the end of a sentence; undefined if it is JSON, which may be one. */
function otherLookOf(bytes: Uint8Array): string | undefined {
  const start = startOf(bytes);
  if (START_OF_PLAN.test(start)) return undefined;
  if (bytes.length === 0) return 'is empty';
  if (looksLikeBufferCsv(start)) return 'is a list of buffers';
  if (looksLikeAccessJson(start) || looksLikeAutoSwap(start)) return 'is a recording of accesses';
  if (looksLikeMallocText(start)) return 'is a text trace of allocations';
  let format: ReturnType<typeof detectFormat>;
  try {
    format = detectFormat(bytes);
  } catch {
    return lookOf(bytes);
  }
  if (format === 'json') return undefined;
  return format === 'weir' ? 'is a .weir recording' : 'is a PyTorch snapshot (pickle)';
}
