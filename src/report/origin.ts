// Which line of the program asked for memory: the innermost frame of the user's own code. Memory of a backward pass belongs to the line
// of its forward pass, or to the operator if the recording has no forward frames: autograd's threads have no lines of their own.
import { FORWARD_MARK } from '../trace/snapshot/forward-frames.ts';
import { type Frame, NO_STACK, type Symbols } from '../trace/symbols.ts';

/** Where a request came from. */
export interface Origin {
  /** `file.py:123 function`, `backward of bmm at file.py:123 function`, or why the line is unknown. */
  readonly label: string;
  /** The line; undefined: none is known. */
  readonly frame: Frame | undefined;
  /** What a backward pass runs; empty: unknown. Undefined: the memory is not of a backward pass. */
  readonly backward: string | undefined;
  /** Frames of the user's code that led to the line, innermost first. */
  readonly callers: readonly Frame[];
}

/** Installed libraries between the user's code and the allocator. The first frame outside of them tells more. */
const PACKAGES = /^(torch|functorch|accelerate|deepspeed|lightning|pytorch_lightning|einops|opt_einsum|weir_gpu)\//i;
/** The same outside of installed packages: PyTorch in its own sources, what it has generated, Python itself. Users, too, call a folder "torch". */
const LIBRARIES =
  /\/torch\/((_\w+|ao|amp|autograd|backends|compiler|cuda|distributed|export|func|fx|jit|multiprocessing|nested|nn|optim|profiler|sparse|testing|utils)\/|(__init__|_\w+|functional|hub|library|overrides|random|serialization|storage)\.py$)|\/weir_gpu\/|\/torchinductor_|\/lib\/python\d[.\d]*\/(?!(site|dist)-packages\/)|^<frozen /i;
/** Compiled code has source files without lines, object files, or nothing. The C library starts threads in assembly. */
const NATIVE = /(^|\/)(\?\?)?$|\.(cpp|cc|cxx|c|cu|cuh|h|hh|hpp|hxx|inc|inl|ipp|tcc|rs|asm|[sS]|so|o|llvm)\b[^/]*$/;
const NATIVE_NAME = /::|\(/;
/** Nodes of the autograd graph, as PyTorch names their functions. */
const NODE = /\btorch::autograd::(?:generated::)?(\w+?)(?:::apply|_apply_functional)\(/;
const CPP_NODE = /\btorch::autograd::CppNode(?:_apply_functional)?<(?:\w+::)*(\w+)/;
const ENGINE = /\btorch::autograd::(?:python::Python)?Engine::/;
const FORWARD_OPERATOR = /\btorch::autograd::VariableType::(?:\(anonymous namespace\)::)?_?(\w+?)(?:_[A-Z]\w*)?\(/;
const OPERATOR = /\bat::_ops::(\w+?)::(?:call|redispatch)\b/;
/** Weir's own recordings name the node that runs, on top of the forward stack. */
const BACKWARD_MARK = /^backward of (\S.*)$/;
const ENGINE_CALLERS = new Set(['_engine_run_backward', 'backward', 'grad']);
/** Work of the engine beside its nodes, by the function that does it. */
const ENGINE_WORK: readonly (readonly [RegExp, string])[] = [
  [/\btorch::autograd::AccumulateGrad::/, 'gradient accumulation'],
  [/\btorch::autograd::InputBuffer::/, 'sum of gradients'],
  [/\btorch::autograd::InputMetadata::/, 'reduction of gradients'],
  [/\btorch::autograd::validate_outputs/, 'cast of gradients'],
];
/** Functions that record a stack or hand out memory. They are in every stack. */
const MACHINERY =
  /^(torch::unwind|torch::CapturedTraceback|torch::cuda::|c10::cuda::|c10::impl::|at::detail::|at::TensorBase at::detail::)/;
/** Functions at the bottom of a thread, and those without a name. They say nothing of who asked. */
const THREAD_START =
  /^(\?*|_+|(std::)?execute_native_thread_routine\w*(\(.*)?|start_thread|thread_start|(__)?(GI_+)?clone3?|_start|__libc_start\w*|std::thread::_.*)$/;
const MOST_CALLERS = 8;
/** Frames looked at. A stack of more is that of a recursion, or made up. */
export const MOST_FRAMES = 2048;

const Kind = { Unknown: 0, User: 1, Library: 2, Native: 3, EngineCaller: 4, Engine: 5, Node: 6, Compiled: 7, Mark: 8 } as const;

/** Where all stacks of a recording come from, each found once. */
export class Origins {
  private readonly symbols: Symbols;
  private readonly known = new Map<number, Origin>();
  private readonly frames: Frame[] = [];
  private kinds = new Uint8Array(0);
  private forwardLines: Map<string, Frame | undefined> | undefined;

  constructor(symbols: Symbols) {
    this.symbols = symbols;
  }

  /** Not for NO_STACK. */
  of(stack: number): Origin {
    let site = this.known.get(stack);
    if (!site) {
      site = this.find(stack);
      this.known.set(stack, site);
    }
    return site;
  }

  /** Whether a frame is of the user's own code. */
  isUser(frame: number): boolean {
    return (this.kinds[frame] || this.kind(frame, this.frame(frame))) === Kind.User;
  }

  /** Whether a frame is a line of Python, the user's or a library's. */
  isPython(frame: number): boolean {
    const kind = this.kinds[frame] || this.kind(frame, this.frame(frame));
    return kind === Kind.User || kind === Kind.Library || kind === Kind.EngineCaller || kind === Kind.Compiled;
  }

  private find(stack: number): Origin {
    const { stacks } = this.symbols;
    let operator = '';
    let isBackward = false;
    let isForward = false;
    let hasPython = false;
    /** The first frames of each kind. */
    let ran: Frame | undefined;
    let library: Frame | undefined;
    let forwardLibrary: Frame | undefined;
    let called: Frame | undefined;
    let native: Frame | undefined;
    let kernel = '';
    /** The operator that the engine or Python called, as far as no other frame is between. */
    let outermost = '';
    const callers: Frame[] = [];
    for (let node = stack, depth = 0; node !== NO_STACK && depth < MOST_FRAMES; node = stacks.parent(node), depth++) {
      if (callers.length === MOST_CALLERS) break;
      const frame = this.frame(stacks.frame(node));
      switch (this.kind(stacks.frame(node), frame)) {
        case Kind.User:
          if (ran) callers.push(frame);
          else if (isBackward && !isForward) called ??= frame;
          else ran = frame;
          hasPython = true;
          break;
        case Kind.Library:
          if (isForward) forwardLibrary ??= frame;
          else library ??= frame;
          hasPython = true;
          break;
        case Kind.EngineCaller:
          // Other functions of these files allocate by themselves.
          if (!hasPython) isBackward = true;
          library ??= frame;
          hasPython = true;
          break;
        case Kind.Compiled:
          if (!ran) {
            isBackward = true;
            operator ||= 'compiled code';
          }
          hasPython = true;
          break;
        case Kind.Node:
          if (ran) break;
          isBackward = true;
          operator ||= operatorOf(frame.name);
          break;
        case Kind.Engine:
          if (!ran) isBackward = true;
          break;
        case Kind.Mark:
          // What the user's own backward functions, hooks and recomputed layers allocate has a line already.
          if (ran) break;
          isBackward = true;
          isForward = true;
          operator ||= operatorOf(frame.name);
          break;
        default:
          if (!isBackward) outermost = OPERATOR.exec(frame.name)?.[1] ?? outermost;
          kernel ||= outermost;
          if (!MACHINERY.test(frame.name) && !THREAD_START.test(frame.name)) native ??= frame;
      }
    }
    const at = ran ?? forwardLibrary ?? (isBackward && operator !== '' ? this.forwardLine(operator) : undefined);
    if (ran && !isForward) return { label: lineOf(ran), frame: ran, backward: undefined, callers };
    if (isBackward && operator === '' && outermost !== '' && !at && !called)
      return { label: `backward, operator ${outermost}`, frame: undefined, backward: operator, callers };
    if (isBackward) return { label: backwardLabel(operator, at, called), frame: at ?? called, backward: operator, callers };
    if (library) return { label: lineOf(library), frame: library, backward: undefined, callers };
    if (kernel !== '') return { label: `operator ${kernel} (no Python frames)`, frame: undefined, backward: undefined, callers };
    const label = native ? lineOf(native) : '(no frames of the program)';
    return { label, frame: undefined, backward: undefined, callers };
  }

  /** The line that runs an operator in forward, if one line alone does. Known only if C++ frames were recorded. */
  private forwardLine(operator: string): Frame | undefined {
    this.forwardLines ??= this.findForwardLines();
    return this.forwardLines.get(operator);
  }

  private findForwardLines(): Map<string, Frame | undefined> {
    const { stacks, frames, strings } = this.symbols;
    const lines = new Map<string, Frame | undefined>();
    for (let stack = 0; stack < stacks.count; stack++) {
      const operator = FORWARD_OPERATOR.exec(strings[frames.name(stacks.frame(stack))] ?? '')?.[1];
      if (operator === undefined) continue;
      const line = this.userLine(stack);
      if (!line) continue;
      const known = lines.get(operator);
      const isOther = known && (known.line !== line.line || known.filename !== line.filename);
      lines.set(operator, isOther || (lines.has(operator) && !known) ? undefined : line);
    }
    return lines;
  }

  /** The innermost frame of the user's code; undefined: there is none, or a backward pass is between. */
  private userLine(stack: number): Frame | undefined {
    const { stacks } = this.symbols;
    for (let node = stack, depth = 0; node !== NO_STACK && depth < MOST_FRAMES; node = stacks.parent(node), depth++) {
      const frame = this.frame(stacks.frame(node));
      const kind = this.kind(stacks.frame(node), frame);
      if (kind === Kind.User) return frame;
      if (kind >= Kind.EngineCaller) return undefined;
    }
    return undefined;
  }

  private frame(index: number): Frame {
    let frame = this.frames[index];
    if (!frame) {
      const recorded = this.symbols.frame(index);
      // A recording of a job on Windows has backslashes.
      frame = { ...recorded, filename: recorded.filename.replaceAll('\\', '/') };
      this.frames[index] = frame;
    }
    return frame;
  }

  private kind(index: number, frame: Frame): number {
    if (index >= this.kinds.length) {
      const grown = new Uint8Array(Math.max(this.symbols.frames.count, index + 1));
      grown.set(this.kinds);
      this.kinds = grown;
    }
    let kind = this.kinds[index]!;
    if (kind === Kind.Unknown) {
      kind = kindOf(frame);
      this.kinds[index] = kind;
    }
    return kind;
  }
}

const origins = new WeakMap<Symbols, Origins>();

/** All GPUs of a recording share their symbols. */
export function originsOf({ symbols }: { readonly symbols: Symbols }): Origins {
  let sites = origins.get(symbols);
  if (!sites) {
    sites = new Origins(symbols);
    origins.set(symbols, sites);
  }
  return sites;
}

function kindOf({ filename, name, line }: Frame): number {
  if (filename === '' && (name === FORWARD_MARK || BACKWARD_MARK.test(name))) return Kind.Mark;
  if (isNative({ filename, name, line })) {
    if (NODE.test(name) || CPP_NODE.test(name) || ENGINE_WORK.some(([pattern]) => pattern.test(name))) return Kind.Node;
    return ENGINE.test(name) ? Kind.Engine : Kind.Native;
  }
  const path = inPackages(filename);
  if (!(path === filename ? LIBRARIES : PACKAGES).test(path)) return Kind.User;
  if (/\btorch\/autograd\/(__init__|graph)\.py$/.test(path) && ENGINE_CALLERS.has(name)) return Kind.EngineCaller;
  return /\/_aot_autograd\//.test(path) && /backward/.test(name) ? Kind.Compiled : Kind.Library;
}

/**
 * Whether a frame is of compiled code. All others are Python's, whatever their file is called: scripts need not end in `.py`.
 * Only compiled code has functions with namespaces or parameters, or lines 0 in such files.
 */
export function isNative({ filename, name, line }: Frame): boolean {
  if (/\.py$|^</.test(filename)) return false;
  return line === 0 || NATIVE.test(filename) || NATIVE_NAME.test(name);
}

/** `BmmBackward0` as its operator, `bmm`. Classes of the user keep their names. */
function operatorOf(name: string): string {
  const work = ENGINE_WORK.find(([pattern]) => pattern.test(name));
  if (work) return work[1];
  const node = CPP_NODE.exec(name)?.[1] ?? markedNode(name) ?? NODE.exec(name)?.[1] ?? '';
  if (node === 'AccumulateGrad') return 'gradient accumulation';
  // Nodes of functions written in Python, which have frames of their own.
  if (node === 'PyNode') return '';
  if (node.startsWith('CompiledFunction')) return 'compiled code';
  const generated = /^(\w+?)Backward\d+$/.exec(node)?.[1];
  if (generated) return generated.replaceAll(/(?<=[a-z0-9])(?=[A-Z])/g, '_').toLowerCase();
  return node.replace(/Backward$/, '');
}

/** The class in Weir's own mark, without its namespaces. */
function markedNode(name: string): string | undefined {
  const node = BACKWARD_MARK.exec(name)?.[1]?.replace(/[<(].*$/, '');
  return node?.split('::').at(-1);
}

function backwardLabel(operator: string, at: Frame | undefined, called: Frame | undefined): string {
  const isWork = ENGINE_WORK.some(([, work]) => work === operator);
  if (isWork) return at ? `backward, ${operator} for ${lineOf(at)}` : `backward, ${operator}`;
  if (at) return `backward of ${operator === '' ? '' : `${operator} at `}${lineOf(at)}`;
  if (operator !== '') return `backward of ${operator}`;
  return called ? `backward called at ${lineOf(called)}` : 'backward of an unknown operator';
}

/** `file.py:123 function`, with the last two parts of the path: they are enough to tell files apart. */
export function lineOf({ filename, line, name }: Frame): string {
  return filename === '' ? name : `${filename.split('/').slice(-2).join('/')}:${line} ${name}`;
}

/** The part of a path that shows that it is a library's, which is the same on all machines; undefined: it is the user's own. */
export function libraryPath(filename: string): string | undefined {
  const path = inPackages(filename);
  if (path !== filename) return `/site-packages/${path}`;
  const found = LIBRARIES.exec(filename);
  return found ? filename.slice(found.index) : undefined;
}

/** The path below the installed packages, since the environment itself may be in a folder called torch. */
export function inPackages(filename: string): string {
  return filename.replace(/^.*\/(site|dist)-packages\//, '');
}
