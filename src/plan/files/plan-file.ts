// Plan files: versioned JSON, specified in docs/plan-format.md. A plan decides where a training run puts its data,
// so every field is checked on load, and `readPlan` refuses a plan whose blocks share bytes.
import { Format } from '../../abi/formats.ts';
import { InputError, UsageError } from '../../base/errors.ts';
import type { Buffer, Layout } from '../offsets/buffers.ts';
import { checkBuffers } from '../offsets/buffers.ts';
import { verifyOffsets } from '../offsets/verifier.ts';
import type { Step, StepBlock } from '../steps/step.ts';
import type { StepPlan } from '../steps/step-plan.ts';
import { verifyStepPlan } from '../steps/verifier.ts';
import type { SwapStep } from '../swaps/accesses.ts';
import type { CopyCosts } from '../swaps/copy-costs.ts';
import type { SwapPlan } from '../swaps/planner.ts';
import type { Swap } from '../swaps/schedule.ts';

export const PLAN_VERSION: number = Format.planFile.version;

export interface OffsetsPlanFile {
  readonly kind: 'offsets';
  readonly buffers: readonly Buffer[];
  readonly layout: Layout;
}

export interface StepPlanFile {
  readonly kind: 'step';
  readonly plan: StepPlan;
}

export interface SwapPlanFile {
  readonly kind: 'swaps';
  readonly periodUs: number;
  readonly peak: number;
  readonly limit: number;
  readonly costs: CopyCosts;
  readonly swaps: readonly Swap[];
  /** Arena size in bytes. If offsets were planned too: one offset per block and turn. */
  readonly footprint: number;
  readonly turns: number;
  readonly offsets: readonly number[];
}

export type PlanFile = OffsetsPlanFile | StepPlanFile | SwapPlanFile;

/** The plan in the form of a plan file. */
export function swapPlanFile(step: SwapStep, plan: SwapPlan, costs: CopyCosts): SwapPlanFile {
  if (!plan.verified) {
    throw new UsageError(`a limit of ${plan.limit} bytes cannot be kept without waiting; the lowest that can is ${plan.zeroStallLimit}`);
  }
  const { peak, limit, swaps, footprint, turns } = plan;
  return { kind: 'swaps', periodUs: step.periodUs, peak, limit, costs, swaps, footprint, turns, offsets: Array.from(plan.layout.offsets) };
}

/** For errors about files that are no plans. */
export const PLAN_FIRST = 'the plan comes first: weir verify PLAN FILE';
const MAX_ITEMS = 5_000_000;
const MAX_TURNS = 16;

export function writePlan(plan: PlanFile): string {
  return `${JSON.stringify({ weir: 'plan', version: PLAN_VERSION, kind: plan.kind, ...bodyOf(plan) })}\n`;
}

function bodyOf(file: PlanFile): object {
  switch (file.kind) {
    case 'offsets':
      return {
        footprint: file.layout.footprint,
        buffers: file.buffers.map(({ id, size, alignment, spans }, index) => ({
          id,
          size,
          alignment,
          spans: spans.map(({ from, to }) => [from, to]),
          offset: file.layout.offsets[index],
        })),
      };
    case 'step': {
      const { step, layout, lowerBound } = file.plan;
      const { period, start, turns, wholeRunBytes, wholeRunBlocks } = step;
      const blocks = step.blocks.map(({ birth, death, size, stream }, index) => ({
        birth,
        death,
        size,
        stream,
        offsets: Array.from(layout.offsets.subarray(index * turns, (index + 1) * turns)),
      }));
      return { footprint: layout.footprint, lowerBound, period, start, turns, wholeRunBytes, wholeRunBlocks, blocks };
    }
    case 'swaps': {
      const { kind: _, ...body } = file;
      return body;
    }
  }
}

/** Reads a plan to use it: a plan that does not verify is refused. */
export function readPlan(text: string): PlanFile {
  const file = parsePlan(text);
  const [fault] =
    file.kind === 'offsets' ? verifyOffsets(file.buffers, file.layout, 1) : file.kind === 'step' ? verifyStepPlan(file.plan) : [];
  if (fault) throw new InputError(`the plan is invalid: ${fault.message}`);
  return file;
}

/** Reads a plan to judge it: every field has its type, but the plan may be wrong. */
export function parsePlan(text: string): PlanFile {
  const { data, isJson } = parseLoosely(text);
  const root = new Fields(data, 'the plan');
  if (root.raw('weir') !== 'plan') throw new InputError(`the file is JSON but not a plan of Weir (it lacks "weir": "plan"); ${PLAN_FIRST}`);
  const version = root.whole('version', 1);
  if (version > PLAN_VERSION)
    throw new InputError(`the plan has version ${version}, but this weir reads up to ${PLAN_VERSION}: update weir`);
  const plan = readBody(root);
  if (!isJson) throw new InputError('the plan holds NaN or Infinity, which JSON does not have');
  return plan;
}

/** Python writes NaN and Infinity into JSON. They are read as text, so that the error can name the field. */
function parseLoosely(text: string): { data: unknown; isJson: boolean } {
  try {
    return { data: JSON.parse(text), isJson: true };
  } catch (error) {
    try {
      return { data: JSON.parse(text.replaceAll(/([:,[]\s*)(NaN|-?Infinity)(?=\s*[,}\]])/g, '$1"$2"')), isJson: false };
    } catch {
      // The parser's message quotes the file, so it is not passed on.
      const why = /unexpected end|unterminated/i.test(String(error)) ? ': it ends early' : '';
      throw new InputError(`the plan is not valid JSON${why}; make it again with weir plan -o FILE`);
    }
  }
}

function readBody(root: Fields): PlanFile {
  switch (root.raw('kind')) {
    case 'offsets':
      return readOffsets(root);
    case 'step':
      return readStep(root);
    case 'swaps':
      return readSwaps(root);
    default:
      throw new InputError(`the plan has the unknown kind ${show(root.raw('kind'))}; known kinds are offsets, step and swaps`);
  }
}

function readOffsets(root: Fields): OffsetsPlanFile {
  const offsets: number[] = [];
  const buffers = root.list('buffers', MAX_ITEMS).map((item, index): Buffer => {
    const unnamed = new Fields(item, `buffer ${index}`);
    const id = unnamed.raw('id');
    if (typeof id !== 'string') throw new InputError(`buffer ${index} of the plan has the invalid id ${show(id)}`);
    const fields = new Fields(item, `buffer ${index} (${show(id)})`);
    offsets.push(fields.whole('offset'));
    const spans = fields.list('spans', 10_000).map((span) => {
      if (!Array.isArray(span) || span.length !== 2) throw new InputError(`buffer ${index} of the plan has the invalid span ${show(span)}`);
      return { from: finite(span[0], `a span of buffer ${index}`), to: finite(span[1], `a span of buffer ${index}`) };
    });
    return { id, size: fields.whole('size', 1), alignment: fields.whole('alignment', 1), spans };
  });
  checkBuffers(buffers);
  const layout = { offsets: Float64Array.from(offsets), footprint: root.whole('footprint') };
  return { kind: 'offsets', buffers, layout };
}

function readStep(root: Fields): StepPlanFile {
  const period = root.whole('period', 1);
  const turns = root.whole('turns', 1, MAX_TURNS);
  const offsets: number[] = [];
  const blocks = root.list('blocks', MAX_ITEMS).map((item, index): StepBlock => {
    const fields = new Fields(item, `block ${index}`);
    const own = fields.list('offsets', MAX_TURNS);
    if (own.length !== turns) throw new InputError(`block ${index} of the plan has ${own.length} offsets for ${turns} turns`);
    for (const offset of own) offsets.push(whole(offset, `an offset of block ${index}`, 0, Number.MAX_SAFE_INTEGER));
    return {
      birth: fields.whole('birth'),
      death: fields.whole('death'),
      size: fields.whole('size', 1),
      stream: fields.whole('stream'),
    };
  });
  const step: Step = {
    period,
    start: root.whole('start'),
    turns,
    blocks,
    wholeRunBytes: root.whole('wholeRunBytes'),
    wholeRunBlocks: root.whole('wholeRunBlocks'),
  };
  const layout = { offsets: Float64Array.from(offsets), footprint: root.whole('footprint') };
  const plan: StepPlan = { step, layout, lowerBound: root.whole('lowerBound') };
  return { kind: 'step', plan };
}

function readSwaps(root: Fields): SwapPlanFile {
  const swaps = root.list('swaps', MAX_ITEMS).map((item, index): Swap => {
    const fields = new Fields(item, `swap ${index}`);
    return {
      block: fields.whole('block'),
      size: fields.whole('size', 1),
      outStartUs: fields.finite('outStartUs'),
      outEndUs: fields.finite('outEndUs'),
      inStartUs: fields.finite('inStartUs'),
      inEndUs: fields.finite('inEndUs'),
    };
  });
  const costs = new Fields(root.raw('costs'), 'the costs');
  const direction = (name: string) => {
    const fields = new Fields(costs.raw(name), `costs.${name}`);
    return {
      fixedUs: fields.finite('fixedUs', 0),
      alone: fields.finite('alone', Number.MIN_VALUE),
      both: fields.finite('both', Number.MIN_VALUE),
    };
  };
  return {
    kind: 'swaps',
    periodUs: root.finite('periodUs', Number.MIN_VALUE),
    peak: root.whole('peak'),
    limit: root.whole('limit'),
    costs: { name: costs.text('name'), out: direction('out'), in: direction('in') },
    swaps,
    footprint: root.whole('footprint'),
    turns: root.whole('turns', 1, MAX_TURNS),
    offsets: root.list('offsets', MAX_ITEMS).map((offset) => whole(offset, 'an offset', 0, Number.MAX_SAFE_INTEGER)),
  };
}

/** Reads fields of a JSON object and checks their types. */
class Fields {
  private readonly values: Readonly<Record<string, unknown>>;
  private readonly what: string;

  constructor(value: unknown, what: string) {
    if (typeof value !== 'object' || value === null || Array.isArray(value))
      throw new InputError(`${what} must be an object, not ${show(value)}`);
    this.values = value as Record<string, unknown>;
    this.what = what;
  }

  raw(name: string): unknown {
    return Object.hasOwn(this.values, name) ? this.values[name] : undefined;
  }

  whole(name: string, least = 0, most: number = Number.MAX_SAFE_INTEGER): number {
    return whole(this.raw(name), `${name} of ${this.what}`, least, most);
  }

  finite(name: string, least: number = -Number.MAX_VALUE): number {
    return finite(this.raw(name), `${name} of ${this.what}`, least);
  }

  text(name: string): string {
    const value = this.raw(name) ?? '';
    if (typeof value !== 'string') throw new InputError(`${name} of ${this.what} must be a text, not ${show(value)}`);
    return value;
  }

  list(name: string, most: number): unknown[] {
    const value = this.raw(name);
    if (!Array.isArray(value) || value.length > most)
      throw new InputError(`${name} of ${this.what} must be a list of at most ${most} entries, not ${show(value)}`);
    return value;
  }
}

function whole(value: unknown, what: string, least: number, most: number): number {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= least && value <= most) return value;
  const range = most === Number.MAX_SAFE_INTEGER ? `, ${least} or more` : ` from ${least} to ${most}`;
  throw new InputError(`${what} must be a whole number${range}, not ${show(value)}`);
}

function finite(value: unknown, what: string, least: number = -Number.MAX_VALUE): number {
  if (typeof value === 'number' && Number.isFinite(value) && value >= least) return value;
  throw new InputError(`${what} must be a number, not ${show(value)}`);
}

/** The value in a message. Lists and objects may be nested deeper than `JSON.stringify` can go. */
function show(value: unknown): string {
  if (value === undefined) return 'missing';
  if (Array.isArray(value)) return `a list of ${value.length} entries`;
  return typeof value === 'object' && value !== null ? 'an object' : JSON.stringify(value).slice(0, 60);
}
