// What call stacks say about memory: the phase of the step that made a request, and what some requests are for.
import { FORWARD_MARK } from '../../trace/snapshot/forward-frames.ts';
import { type Frame, NO_STACK, type Symbols } from '../../trace/symbols.ts';
import { EventKind, type Trace } from '../../trace/trace.ts';
import { isNative } from '../origin.ts';
import { stacksFrom } from '../sampled-stacks.ts';

/** setup: a model is made, moved or loaded. none: nothing can be said. */
export type StackPhase = 'setup' | 'forward' | 'backward' | 'optimizer' | 'none';

export interface StackMeaning {
  readonly phase: StackPhase;
  /** What the memory is for, if it is kept. */
  readonly holds?: 'optimizerState' | 'kvCache' | 'parameter' | undefined;
  /** A module's forward pass made the request. */
  readonly inModule: boolean;
}

const OPTIMIZER_FILES = /(^|\/)(torch\/optim|apex\/optimizers|bitsandbytes\/optim|deepspeed\/ops\/(adam|lamb|lion)|torchao\/optim)\//;
const STATE_MAKERS = /^(_init_group|init_state|_init_state|get_state_buffer|state_init)$/;
/** Whoever makes a model, moves or loads it. */
const SETUP_NAMES =
  /^(__init__|_apply|to_empty|load_state_dict|from_pretrained|_load_from_state_dict|set_module_tensor_to_device|_init_sharded_param)$/;
const MODULE_FILES = /(^|\/)torch\/nn\/modules\//;
const MODULE_CALL = /^(_call_impl|_wrapped_call_impl|_slow_forward)$/;
const CACHE_FILES = /(^|\/)(cache_utils|kv_cache|kv_cache_manager)\.py$/;
const ENGINE_NAMES = /autograd::Engine|Engine::(evaluate_function|thread_main|execute)|PyNode::apply|execute_native_thread_routine/;

/** What one frame says, as bits. */
const Sign = {
  Mark: 1,
  Optimizer: 2,
  StateMaker: 4,
  Cache: 8,
  Setup: 16,
  Backward: 32,
  ModuleCall: 64,
  Python: 128,
  Parameter: 256,
} as const;

/** What the inner frames of a stack have said so far: one number for each combination, so that answers can be kept by it. */
const PHASES = ['none', 'setup', 'forward', 'optimizer'] as const;
const HOLDINGS = [undefined, 'optimizerState', 'kvCache', 'parameter'] as const;
const STATES = 2 * PHASES.length * HOLDINGS.length;
const DONE = -1;

/** All answers: a backward pass outside or inside of a module, then those of stacks that are read to their end. */
const ANSWERS: readonly StackMeaning[] = [
  { phase: 'backward', inModule: false },
  { phase: 'backward', inModule: true },
  ...Array.from({ length: STATES }, (_, state) => answerAtEnd(state)),
];

export class StackMeanings {
  /** Whether stacks say enough to tell the phases of the run. */
  readonly tellPhases: boolean;
  private readonly symbols: Symbols;
  private readonly bare: StackMeaning;
  private readonly signs: Uint16Array;
  private readonly hasSigns: Uint8Array;
  /** By state and stack: 1 + the answer's place in ANSWERS; 0: unknown. Callers are shared, so each is read once per state. */
  private readonly known: (Uint8Array | undefined)[] = [];

  constructor(trace: Trace) {
    this.symbols = trace.symbols;
    this.signs = new Uint16Array(trace.symbols.frames.count);
    this.hasSigns = new Uint8Array(trace.symbols.frames.count);
    // Where Python's frames were recorded, a request without any came from a thread of autograd, unless only large ones have them.
    this.tellPhases = hasMostStacks(trace);
    this.bare = { phase: this.tellPhases && stacksFrom(trace) === 0 ? 'backward' : 'none', inModule: false };
  }

  of(stack: number): StackMeaning {
    if (stack === NO_STACK) return this.bare;
    const { stacks } = this.symbols;
    const nodes: number[] = [];
    const states: number[] = [];
    let node = stack;
    let state = 0;
    let answer = 0;
    while (answer === 0) {
      answer = node === NO_STACK ? 3 + state : (this.answersIn(state)[node] ?? 0);
      if (answer > 0) break;
      nodes.push(node);
      states.push(state);
      const next = nextState(state, this.signsOf(stacks.frame(node)));
      if (next === DONE) answer = 1 + inModule(state);
      else state = next;
      node = stacks.parent(node);
    }
    nodes.forEach((known, at) => {
      this.answersIn(states[at]!)[known] = answer;
    });
    return ANSWERS[answer - 1]!;
  }

  private answersIn(state: number): Uint8Array {
    let answers = this.known[state];
    if (!answers) {
      answers = new Uint8Array(this.symbols.stacks.count);
      this.known[state] = answers;
    }
    return answers;
  }

  private signsOf(frame: number): number {
    if (this.hasSigns[frame]) return this.signs[frame]!;
    const found = signsOf(this.symbols.frame(frame));
    this.signs[frame] = found;
    this.hasSigns[frame] = 1;
    return found;
  }
}

function inModule(state: number): number {
  return state % 2;
}

function stateOf(phase: (typeof PHASES)[number], holds: (typeof HOLDINGS)[number], isInModule: number): number {
  return 2 * (PHASES.length * HOLDINGS.indexOf(holds) + PHASES.indexOf(phase)) + isInModule;
}

function partsOf(state: number): { phase: (typeof PHASES)[number]; holds: (typeof HOLDINGS)[number] } {
  const rest = state >> 1;
  return { phase: PHASES[rest % PHASES.length]!, holds: HOLDINGS[Math.floor(rest / PHASES.length)] };
}

function signsOf(frame: Frame): number {
  const filename = frame.filename.replaceAll('\\', '/');
  const isPython = !isNative({ ...frame, filename });
  // Weir records functions with their classes, PyTorch without.
  const name = isPython ? frame.name.slice(frame.name.lastIndexOf('.') + 1) : frame.name;
  return (
    (name === FORWARD_MARK || name.startsWith('backward of ') ? Sign.Mark : 0) |
    (OPTIMIZER_FILES.test(filename) ? Sign.Optimizer : 0) |
    (STATE_MAKERS.test(name) ? Sign.StateMaker : 0) |
    (CACHE_FILES.test(filename) ? Sign.Cache : 0) |
    (isPython && SETUP_NAMES.test(name) ? Sign.Setup : 0) |
    // Classes of all kinds have a constructor.
    (isPython && SETUP_NAMES.test(name) && (name !== '__init__' || MODULE_FILES.test(filename)) ? Sign.Parameter : 0) |
    (isBackward(name, filename, isPython) ? Sign.Backward : 0) |
    (MODULE_FILES.test(filename) && MODULE_CALL.test(name) ? Sign.ModuleCall : 0) |
    (isPython ? Sign.Python : 0)
  );
}

/** What is known after one more frame, further out. DONE: it is a backward pass. */
function nextState(state: number, signs: number): number {
  if (signs & Sign.Mark) return DONE;
  let { phase, holds } = partsOf(state);
  let isInModule = inModule(state);
  // An optimizer with a closure has the passes inside of it.
  if (signs & Sign.Optimizer && !isInModule) {
    if (signs & Sign.StateMaker) holds = 'optimizerState';
    phase = 'optimizer';
  } else if (signs & Sign.Cache) holds ??= 'kvCache';
  else if (phase !== 'optimizer' && signs & Sign.Setup) {
    phase = 'setup';
    if (signs & Sign.Parameter) holds ??= 'parameter';
  }
  if (phase !== 'optimizer' && signs & Sign.Backward) return DONE;
  if (signs & Sign.ModuleCall) isInModule = 1;
  if (signs & Sign.Python && phase === 'none') phase = 'forward';
  return stateOf(phase, holds, isInModule);
}

function answerAtEnd(state: number): StackMeaning {
  const { phase, holds } = partsOf(state);
  const isInModule = inModule(state) === 1;
  // Frames of C++ only: a thread without Python, and those are autograd's.
  if (phase === 'none') return { phase: 'backward', inModule: isInModule };
  // A module may make objects while it runs.
  const last = phase === 'setup' && isInModule ? 'forward' : phase;
  return { phase: last, holds: holds === 'parameter' && last !== 'setup' ? undefined : holds, inModule: isInModule };
}

function isBackward(name: string, filename: string, isPython: boolean): boolean {
  if (name === 'backward' || name === '_engine_run_backward') return true;
  // Checkpointing computes again while autograd asks for what it has not kept.
  if (name === 'unpack_hook' && filename.endsWith('/checkpoint.py')) return true;
  return !isPython && ENGINE_NAMES.test(name);
}

function hasMostStacks({ events }: Trace): boolean {
  let allocs = 0;
  let stacks = 0;
  for (let event = 0; event < events.count; event++) {
    if (events.kind[event] !== EventKind.Alloc) continue;
    allocs++;
    if (events.stack[event] !== NO_STACK) stacks++;
  }
  return stacks > 0 && stacks >= allocs / 4;
}
