// The JSON files between a process and the supervisor of its run, in the run's folder.
// Both sides are generated: interfaces and a checker for TypeScript, classes that read and write for Python.
import type { Entry } from './table.ts';

/** `number` may have a fraction, `whole` has none. `object` and `list` name another shape. */
export type ShapeType =
  | 'text'
  | 'number'
  | 'whole'
  | 'flag'
  | 'numbers'
  | { readonly object: string }
  | { readonly list: string }
  | { readonly choice: readonly string[] };

export interface ShapeField extends Entry {
  readonly type: ShapeType;
  /** May be missing or null. */
  readonly optional?: true;
}

export interface Shape extends Entry {
  readonly fields: readonly ShapeField[];
  /** The file it is the content of: `<pid>` and this. */
  readonly file?: string;
}

function field(name: string, type: ShapeType, doc: string): ShapeField {
  return { name, type, doc };
}

function optional(name: string, type: ShapeType, doc: string): ShapeField {
  return { name, type, doc, optional: true };
}

const VERSION = field('version', 'whole', 'Of the exchange format.');

/** In the folder of a process that runs without `weir run`: who supervises it, as `<pid> <start>`. */
export const SUPERVISOR_FILE = 'supervisor';

/** There, `<pid>` and this: a fork of that process that relies on the same supervisor, as `<pid> <start>`. */
export const FORK_FILE = '.fork';

export const MOVE_CLASSES: readonly string[] = ['record', 'item', 'layer'];

export const SHAPES: readonly Shape[] = [
  {
    name: 'Refusal',
    file: '.refused.json',
    doc: 'Why the allocator was not put in place.',
    fields: [
      field('reason', 'text', 'A word for programs.'),
      field('message', 'text', 'A sentence for people.'),
      field('pid', 'whole', 'Of the process.'),
    ],
  },
  {
    name: 'SummaryRequest',
    file: '.summary-request.json',
    doc: 'A process asks the supervisor for the summary up to now.',
    fields: [
      VERSION,
      field('id', 'text', 'Names the request. The answer has the same.'),
      field('whatIf', 'flag', 'Whether to replay the run on other allocators.'),
      field('say', 'flag', 'Whether the supervisor prints the summary, because the process ends.'),
    ],
  },
  {
    name: 'SummaryAnswer',
    file: '.summary.json',
    doc: 'The summary up to now.',
    fields: [
      VERSION,
      field('id', 'text', 'Of the request.'),
      field('text', 'text', 'For people: lines.'),
      field('json', 'text', 'For programs: JSON (schema 1).'),
    ],
  },
  {
    name: 'PinnedReport',
    file: '.pinned.json',
    doc: "Pinned host memory of a process, from PyTorch's statistics.",
    fields: [
      VERSION,
      field('pid', 'whole', 'Of the process.'),
      field('allocations', 'whole', 'Blocks that were pinned so far.'),
      field('held', 'whole', 'Bytes pinned now, in use or cached.'),
      field('peakHeld', 'whole', 'Peak of held.'),
      optional('used', 'whole', 'Bytes of blocks in use, if PyTorch counts them right.'),
      optional('peakUsed', 'whole', 'Peak of used.'),
      optional('rounding', 'whole', 'Part of what is in use beyond the tensors, because blocks are rounded up to powers of two.'),
    ],
  },
  {
    name: 'ProfileTicks',
    doc: 'One entry per tick of the step, in each list.',
    fields: [
      field('us', 'numbers', 'GPU time since the start of the step, microseconds.'),
      optional('kind', 'numbers', 'What the tick is, as the process numbers it.'),
      optional('value', 'numbers', 'Which of its kind.'),
      optional('size', 'numbers', 'Bytes of it.'),
      field('peak', 'numbers', 'Most bytes allocated from this tick to the next, if nothing is swapped out.'),
    ],
  },
  {
    name: 'SavedRecord',
    doc: 'A storage with tensors saved for backward.',
    fields: [
      field('size', 'whole', 'Bytes.'),
      field('first', 'whole', 'Tick at which it was first saved.'),
      field('sole', 'whole', 'Tick from which on autograd alone holds it; -1: never.'),
      field('uses', 'numbers', 'Ticks at which backward uses it.'),
    ],
  },
  {
    name: 'StateItem',
    doc: 'A tensor of optimizer state.',
    fields: [
      field('size', 'whole', 'Bytes.'),
      field('pre', 'whole', "Tick at which its optimizer's step begins; -1: none."),
      field('post', 'whole', 'Tick at which that step is over; 0: the end of the step before.'),
    ],
  },
  {
    name: 'LayerPassage',
    doc: 'Parameters of a layer, from the end of its forward pass until they are needed again.',
    fields: [
      field('size', 'whole', 'Bytes.'),
      field('left', 'whole', 'Tick at which the forward pass ended.'),
      field('needed', 'whole', 'Tick at which they are needed; -1: never.'),
    ],
  },
  {
    name: 'CopyRates',
    doc: 'Measured speed of copies, bytes per second.',
    fields: [
      field('outAlone', 'number', 'To the host.'),
      field('inAlone', 'number', 'To the GPU.'),
      field('outBoth', 'number', 'To the host while the other direction is busy.'),
      field('inBoth', 'number', 'To the GPU while the other direction is busy.'),
      field('fixedUs', 'number', 'Microseconds that a copy takes besides.'),
    ],
  },
  {
    name: 'SwapProfile',
    file: '.profile.json',
    doc: 'What a process tells about one of its steps, so that its swaps can be planned.',
    fields: [
      VERSION,
      field('key', 'text', 'Names the step by what it does.'),
      field('periodUs', 'number', 'Time of the step, microseconds.'),
      field('ticks', { object: 'ProfileTicks' }, 'The moments of the step at which something can begin or end.'),
      field('records', { list: 'SavedRecord' }, 'Saved tensors.'),
      field('items', { list: 'StateItem' }, 'Optimizer state.'),
      field('passages', { list: 'LayerPassage' }, 'Passes of layers.'),
      field('copies', { object: 'CopyRates' }, 'Speed of the link.'),
      optional('limit', 'whole', 'Bytes to swap down to.'),
      field('hostLimit', 'whole', 'Bytes of host memory that swapping may take.'),
      optional('share', 'number', 'Without a limit: the share to aim at of the memory that could be saved.'),
      optional('pid', 'whole', 'Of the process.'),
      optional('device', 'whole', 'Number of the GPU.'),
      optional('step', 'whole', 'Steps done so far.'),
    ],
  },
  {
    name: 'SwapMove',
    doc: 'One tensor, swapped out and in once per step.',
    fields: [
      field('class', { choice: MOVE_CLASSES }, 'Saved tensor, optimizer state or parameters of a layer.'),
      field('index', 'whole', 'Which of its class, by its place in the profile.'),
      field('size', 'whole', 'Bytes.'),
      field('out', 'whole', 'Tick at which the copy to the host begins.'),
      field('drop', 'whole', 'Tick at which the memory on the GPU is given up.'),
      field('back', 'whole', 'Tick at which the copy to the GPU begins.'),
      field('turn', 'whole', 'Order among copies to the GPU.'),
    ],
  },
  {
    name: 'SwapBound',
    doc: 'The least peak that a step could have on this link without waiting, and what decides it. Bytes.',
    fields: [
      field('peak', 'number', 'No swap plan of this step has a lower peak.'),
      field('live', 'number', 'Live without swapping, at the moment that decides it.'),
      field('idle', 'number', 'The part of it that is not used for long enough to be swapped.'),
      field('out', 'number', 'The most that the link can have copied out by then.'),
      field('back', 'number', 'The most that the link can copy back in time.'),
    ],
  },
  {
    name: 'SwapExpectation',
    doc: 'What the planner expects of a swap plan.',
    fields: [
      field('from', 'number', 'Peak without swapping, bytes.'),
      field('peak', 'number', 'Peak with swapping, bytes.'),
      field('stalls', 'whole', 'Waits of the compute stream per step.'),
      field('stallUs', 'number', 'Time of those waits, microseconds.'),
      field('moved', 'number', 'Bytes out, and as many in, per step.'),
      field('periodUs', 'number', 'Time of the step, microseconds.'),
      optional('limit', 'number', 'The limit asked for, bytes.'),
      field('keepsLimit', 'flag', 'Whether the peak stays below that limit.'),
      optional('bound', { object: 'SwapBound' }, 'What no plan can fall below.'),
      optional('share', 'number', 'The share that the plan aims at of what could be saved, if a fuller plan cost too much time.'),
    ],
  },
  {
    name: 'SwapPlan',
    file: '.swap.json',
    doc: 'The answer to a profile.',
    fields: [
      VERSION,
      field('key', 'text', 'Of the profile.'),
      field('moves', { list: 'SwapMove' }, 'In the order in which copies to the host begin.'),
      field('hostBytes', 'whole', 'Host memory that the plan needs.'),
      field('expected', { object: 'SwapExpectation' }, 'What the plan should come to.'),
    ],
  },
  {
    name: 'StepTimes',
    doc: 'Time of a step on the GPU, microseconds; missing where too few were seen.',
    fields: [optional('plain', 'number', 'Without swapping.'), optional('planned', 'number', 'With swapping.')],
  },
  {
    name: 'SwapReport',
    file: '.swap-report.json',
    doc: 'Totals of a process, which it writes when it ends.',
    fields: [
      VERSION,
      field('pid', 'whole', 'Of the process.'),
      optional('device', 'whole', 'Number of the GPU.'),
      field('phase', 'text', 'What swapping did last.'),
      optional('stopped', 'text', 'Why swapping stopped before the end.'),
      field('steps', 'whole', 'Steps done.'),
      field('plans', 'whole', 'Swap plans in use.'),
      optional('expected', { object: 'SwapExpectation' }, 'Of the last swap plan.'),
      optional('limit', 'whole', 'Bytes to swap down to.'),
      field('peakAllocated', 'whole', 'In planned steps, bytes.'),
      field('peakReserved', 'whole', 'In planned steps, bytes.'),
      field('hostBytes', 'whole', 'Most host memory in use at once.'),
      field('hostPinned', 'whole', 'Host memory pinned.'),
      optional('copies', { object: 'CopyRates' }, 'Speed of the link.'),
      optional('stepUs', { object: 'StepTimes' }, 'Time of a step.'),
      field('bytesOut', 'whole', 'Bytes swapped out.'),
      field('bytesIn', 'whole', 'Bytes swapped in.'),
      field('stalls', 'whole', 'Waits of the compute stream for a swap.'),
      field('stallUs', 'number', 'Time of those waits, microseconds.'),
      field('misses', 'whole', 'Tensors that were needed before the swap plan brought them back.'),
      field('offPlan', 'whole', 'Times a step left its swap plan.'),
      field('kept', 'whole', 'Tensors that the swap plan moves but that were in use.'),
      field('stepsPlanned', 'whole', 'Steps that followed a swap plan.'),
      field('stepsOff', 'whole', 'Steps that did not, after there was one.'),
      field('adjusted', 'whole', 'Copies begun earlier because they were late.'),
      field('lateOut', 'whole', 'Copies to the host that were late.'),
      field('parametersOut', 'whole', 'Bytes of bytesOut that were parameters.'),
      field('gradientsOut', 'whole', 'Bytes of bytesOut that were gradients.'),
      field('checked', 'whole', 'Copies whose checksums were compared.'),
      field('reliefs', 'whole', 'Emergency swap-outs, made because a request found no memory.'),
      field('relievedBytes', 'whole', 'Bytes of them.'),
      field('stepsStreamed', 'whole', 'Steps of optimizers whose state passed through the GPU in chunks.'),
    ],
  },
];
