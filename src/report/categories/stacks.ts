// What call stacks say about memory: the phase of the step that made a request, and what some requests are for.
import { FORWARD_MARK } from '../../trace/snapshot/forward-frames.ts';
import { type Frame, NO_STACK } from '../../trace/symbols.ts';
import { EventKind, type Trace } from '../../trace/trace.ts';

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

export class StackMeanings {
  private readonly trace: Trace;
  private readonly known = new Map<number, StackMeaning>();
  private readonly bare: StackMeaning;

  constructor(trace: Trace) {
    this.trace = trace;
    // Where Python's frames were recorded, a request without any came from a thread of autograd.
    this.bare = { phase: hasMostStacks(trace) ? 'backward' : 'none', inModule: false };
  }

  /** Whether stacks say enough to tell the phases of the run. */
  get tellPhases(): boolean {
    return this.bare.phase === 'backward';
  }

  of(stack: number): StackMeaning {
    if (stack === NO_STACK) return this.bare;
    let found = this.known.get(stack);
    if (!found) {
      found = meaningOf(this.trace.symbols.framesOf(stack));
      this.known.set(stack, found);
    }
    return found;
  }
}

function meaningOf(frames: Iterable<Frame>): StackMeaning {
  let phase: StackPhase = 'none';
  let holds: StackMeaning['holds'];
  let inModule = false;
  for (const { name, filename: recorded } of frames) {
    const filename = recorded.replaceAll('\\', '/');
    const isPython = filename.endsWith('.py');
    if (name === FORWARD_MARK || name.startsWith('backward of ')) return { phase: 'backward', inModule };
    // An optimizer with a closure has the passes inside of it.
    if (OPTIMIZER_FILES.test(filename) && !inModule) {
      if (STATE_MAKERS.test(name)) holds = 'optimizerState';
      phase = 'optimizer';
    } else if (CACHE_FILES.test(filename)) holds ??= 'kvCache';
    else if (phase !== 'optimizer' && isPython && SETUP_NAMES.test(name)) phase = 'setup';
    if (phase !== 'optimizer' && isBackward(name, filename)) return { phase: 'backward', inModule };
    if (MODULE_FILES.test(filename) && MODULE_CALL.test(name)) inModule = true;
    if (isPython && phase === 'none') phase = 'forward';
  }
  // Frames of C++ only: a thread without Python, and those are autograd's.
  if (phase === 'none') return { phase: 'backward', inModule };
  // A module may make objects while it runs.
  if (phase === 'setup' && inModule) phase = 'forward';
  return { phase, holds: phase === 'setup' ? (holds ?? 'parameter') : holds, inModule };
}

function isBackward(name: string, filename: string): boolean {
  if (name === 'backward' || name === '_engine_run_backward') return true;
  // Checkpointing computes again while autograd asks for what it has not kept.
  if (name === 'unpack_hook' && filename.endsWith('/checkpoint.py')) return true;
  return !filename.endsWith('.py') && ENGINE_NAMES.test(name);
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
