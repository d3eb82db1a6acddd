// Swapping on the small GPU, with memory of the real engine: what python/weir_gpu/swap does for a tensor, in the order of
// swap-order.json. test/python/swap/test_order.py compares that file with what the Python code does.
import { readFileSync } from 'node:fs';
import type { EngineSettings } from '../../../src/abi/settings.ts';
import { EngineAllocator } from '../../../src/allocator/engine/allocator.ts';
import { GpuModel } from './gpu-model.ts';

export type Order = Readonly<Record<string, readonly string[]>>;

export const ORDER: Order = JSON.parse(readFileSync(new URL('swap-order.json', import.meta.url), 'utf8'));

export const COMPUTE = 0;
export const SIDE = 1;
const OUT = 2;
const IN = 3;
const STREAMS = 4;

/** Mistakes that no single operation of the order shows. */
export type SwapMistake =
  | 'the fence is recorded before the program gives up its last reference'
  | 'the fence is on the compute stream'
  | 'a busy stream is taken for idle'
  | 'a later copy is taken for one that was waited for'
  | 'a later fence is taken for one that was waited for'
  | 'a second tensor of a batch does not wait for memory taken since';

export type TensorAction = 'read' | 'write' | 'release' | 'begin' | 'end' | 'back' | 'unpack' | 'again' | 'die';

/** Letters of a program. `tensor` counts the tensors of the scope. */
export type SwapAction =
  | { readonly do: TensorAction; readonly tensor: number }
  | { readonly do: 'both back' }
  | { readonly do: 'malloc'; readonly stream: number; readonly bytes: number }
  | { readonly do: 'free'; readonly block: number }
  | { readonly do: 'kernel ends'; readonly stream: number };

export interface SwapScope {
  /** For each tensor, the stream on which it is allocated. */
  readonly tensors: readonly number[];
  /** The tensors are optimizer state or parameters: the program may write to them, and every swap-out copies. */
  readonly inPlace?: boolean;
  readonly tensorBytes: number;
  readonly capacity: number;
  readonly sizes: readonly number[];
  readonly mostLive: number;
  readonly depth: number;
  readonly settings: EngineSettings;
  readonly start: readonly SwapAction[];
}

interface Tensor {
  state: 'resident' | 'swapping out' | 'swapped out' | 'swapping in' | 'dead';
  /** The program has a reference. */
  held: boolean;
  /** The host has its content. */
  copied: boolean;
  handle: number;
  stream: number;
  /** Number of the kernels that read its memory. Whoever wrote it has the number before, and different numbers must be ordered. */
  number: number;
  copy: number;
  fence: number;
  readonly slot: number;
  slotNumber: number;
  slotRead: number;
}

/** Events of swapping, which are not events of the engine. */
const EVENTS = { compute: 1_000_000, out: 1_001_000, in: 1_002_000, fence: 1_003_000, idle: 1_004_000 };

export class SwapWorld {
  readonly gpu: GpuModel;
  readonly allocator: EngineAllocator;
  readonly tensors: Tensor[];
  live: { readonly number: number; readonly stream: number; readonly handle: number }[] = [];
  private readonly scope: SwapScope;
  private readonly order: Order;
  private readonly mistake: SwapMistake | undefined;
  private numbers = 0;
  private events = 0;
  /** As Copies.begun, Copies.waited and the numbers of SideStreams. */
  private copies = { out: 0, in: 0 };
  private waited = { out: 0, in: 0 };
  private fences = 0;
  private passed = 0;
  private wantsFence = false;
  private batchWaited = false;

  constructor(scope: SwapScope, order: Order, mistake?: SwapMistake) {
    this.scope = scope;
    this.order = order;
    this.mistake = mistake;
    this.gpu = new GpuModel(STREAMS, scope.capacity + scope.tensors.length * scope.tensorBytes);
    const slots = scope.tensors.map(() => this.hostMemory());
    this.allocator = new EngineAllocator({ backend: this.gpu, streams: [0], events: this.gpu }, scope.settings);
    this.tensors = scope.tensors.map((stream, index) => this.make(stream, slots[index]!));
  }

  run(action: SwapAction): void {
    if ('tensor' in action) this.swap(action.do, this.tensors[action.tensor]!);
    else if (action.do === 'malloc') this.malloc(action.stream, action.bytes);
    else if (action.do === 'free') this.free(action.block);
    else if (action.do === 'kernel ends') this.gpu.advance(action.stream);
    else this.bothBack();
  }

  private swap(what: TensorAction, tensor: Tensor): void {
    switch (what) {
      case 'read':
        if (this.mistake === 'the fence is recorded before the program gives up its last reference') this.recordFence();
        // A correct program makes the side stream wait for the content. It tells nobody else.
        this.gpu.join(SIDE, COMPUTE);
        this.touch(SIDE, tensor, tensor.number);
        break;
      case 'write':
        // It joins the streams again before the compute stream uses the tensor.
        this.gpu.join(SIDE, COMPUTE);
        tensor.number = this.number() + 1;
        this.touch(SIDE, tensor, tensor.number - 1);
        break;
      case 'release':
        tensor.held = false;
        break;
      case 'begin':
        this.follow(this.scope.inPlace ? 'beginOutInPlace' : 'beginOut', tensor);
        tensor.state = 'swapping out';
        tensor.copied = true;
        break;
      case 'end':
        this.follow('endOut', tensor);
        tensor.state = 'swapped out';
        break;
      case 'again':
        this.follow('endOutAgain', tensor);
        tensor.state = 'swapped out';
        break;
      case 'back':
        this.back(tensor);
        break;
      case 'unpack':
        this.makeResident(tensor);
        tensor.held = tensor.state === 'resident';
        break;
      case 'die':
        this.die(tensor);
        break;
    }
  }

  actions(): SwapAction[] {
    const actions: SwapAction[] = [];
    for (let stream = 0; stream < STREAMS; stream++) if (this.gpu.canAdvance(stream)) actions.push({ do: 'kernel ends', stream });
    for (const [tensor, { state, held, copied, copy }] of this.tensors.entries()) {
      if (state === 'dead') continue;
      if (held) actions.push({ do: 'read', tensor }, { do: 'release', tensor });
      // A write beside a copy that is not used does no harm. The model would call it a race.
      if (held && this.scope.inPlace && copy === 0) actions.push({ do: 'write', tensor });
      // Whether the program holds a reference is what Record.is_exclusive finds out.
      if (state === 'resident' && !held && !copied) actions.push({ do: 'begin', tensor });
      if (state === 'resident' && !held && copied) actions.push({ do: 'again', tensor });
      if (state === 'swapping out') actions.push({ do: 'end', tensor });
      if (state === 'swapped out') actions.push({ do: 'back', tensor });
      if (!held) actions.push({ do: 'unpack', tensor }, { do: 'die', tensor });
    }
    if (this.tensors.filter((tensor) => tensor.state === 'swapped out').length === 2) actions.push({ do: 'both back' });
    for (const block of this.live.keys()) actions.push({ do: 'free', block });
    if (this.live.length < this.scope.mostLive) {
      for (const stream of [COMPUTE, SIDE]) for (const bytes of this.scope.sizes) actions.push({ do: 'malloc', stream, bytes });
    }
    return actions;
  }

  key(): string {
    const { reserved, peakInUse } = this.allocator.statistics;
    const own = [this.tensors, this.live, this.copies, this.waited, this.fences, this.passed, this.wantsFence];
    return `${this.allocator.fingerprint()} ${reserved} ${peakInUse} ${JSON.stringify(own)} ${this.gpu.state()}`;
  }

  // ---- the program

  private make(stream: number, slot: number): Tensor {
    const handle = this.allocator.malloc(this.scope.tensorBytes, stream, 0);
    if (handle < 0) throw new Error('the scope has no memory for its tensors');
    const tensor: Tensor = {
      state: 'resident',
      held: true,
      copied: false,
      handle,
      stream,
      number: this.number() + 1,
      copy: 0,
      fence: 0,
      slot,
      slotNumber: 0,
      slotRead: 0,
    };
    this.touch(stream, tensor, tensor.number - 1);
    // A tensor of another stream is first used on the compute stream after a wait.
    if (stream !== COMPUTE) this.gpu.join(COMPUTE, stream);
    return tensor;
  }

  private malloc(stream: number, bytes: number): void {
    const handle = this.allocator.malloc(bytes, stream, 0);
    if (handle < 0) return;
    const number = this.number();
    this.live.push({ number, stream, handle });
    this.gpu.launch(stream, number, this.allocator.addressOf(handle), this.allocator.sizeOf(handle));
  }

  private free(index: number): void {
    const [block] = this.live.splice(index, 1);
    this.allocator.free(block!.handle);
    this.allocator.complete(block!.handle);
  }

  /** Backward: the program joins its streams, uses the tensor, and the graph frees it. */
  private die(tensor: Tensor): void {
    this.makeResident(tensor);
    if (tensor.state !== 'resident') return;
    this.gpu.join(COMPUTE, SIDE);
    this.touch(COMPUTE, tensor, tensor.number);
    // Instead of telling the allocator, the program makes the stream of the memory wait for its last use.
    if (tensor.stream !== COMPUTE) this.gpu.join(tensor.stream, COMPUTE);
    this.follow('freeUnused', tensor, tensor.copy > 0 ? this.order['freeUnused'] : ['free']);
    tensor.state = 'dead';
  }

  // ---- swapping

  private back(tensor: Tensor): void {
    if (this.follow('beginIn', tensor)) tensor.state = 'swapping in';
  }

  private makeResident(tensor: Tensor): void {
    // Its memory was never freed, and the copy is not used. It must be over when the memory is freed.
    if (tensor.state === 'swapping out') {
      tensor.state = 'resident';
      tensor.copied = false;
    }
    if (tensor.state === 'swapped out') this.back(tensor);
    if (tensor.state !== 'swapping in') return;
    this.follow('endIn', tensor);
    tensor.copy = 0;
    tensor.state = 'resident';
    if (this.scope.inPlace) tensor.copied = false;
    // The compute stream uses it, as verification and backward do.
    this.touch(COMPUTE, tensor, tensor.number);
  }

  private bothBack(): void {
    this.batchWaited = false;
    for (const tensor of this.tensors) {
      this.back(tensor);
      this.batchWaited = true;
    }
    this.batchWaited = false;
  }

  /** Gives false if there was no memory. */
  private follow(name: string, tensor: Tensor, order: readonly string[] = this.order[name]!): boolean {
    for (const operation of order) if (!this.operate(operation, tensor)) return false;
    return true;
  }

  private operate(operation: string, tensor: Tensor): boolean {
    switch (operation) {
      case 'out waits for compute':
        this.after(OUT, COMPUTE);
        break;
      case 'out waits for fence':
        this.gpu.wait(OUT, EVENTS.fence + tensor.fence);
        break;
      case 'out waits for slot':
        if (tensor.slotRead > 0) this.gpu.wait(OUT, EVENTS.in + tensor.slotRead);
        break;
      case 'copy out':
        this.touch(OUT, tensor, tensor.number);
        tensor.slotNumber = this.number() + 1;
        this.gpu.launch(OUT, tensor.slotNumber - 1, tensor.slot, this.scope.tensorBytes);
        tensor.copy = ++this.copies.out;
        break;
      case 'record out':
        this.gpu.record(OUT, EVENTS.out + tensor.copy);
        break;
      case 'record fence':
        tensor.fence = this.fences + 1;
        if (this.mistake !== 'the fence is recorded before the program gives up its last reference') this.recordFence();
        else tensor.fence = this.fences;
        break;
      case 'compute waits for fence':
        this.passFence(tensor.fence);
        break;
      case 'compute waits for out':
        this.passCopy('out', tensor.copy);
        tensor.copy = 0;
        break;
      case 'mark compute':
        if (tensor.stream !== COMPUTE) this.allocator.recordStream(tensor.handle, COMPUTE);
        break;
      case 'free':
        this.allocator.free(tensor.handle);
        this.allocator.complete(tensor.handle);
        break;
      case 'take memory': {
        const handle = this.allocator.malloc(this.scope.tensorBytes, COMPUTE, 0);
        if (handle < 0) return false;
        tensor.handle = handle;
        tensor.stream = COMPUTE;
        break;
      }
      case 'in waits for compute':
        if (this.batchWaited && this.mistake === 'a second tensor of a batch does not wait for memory taken since') break;
        this.after(IN, COMPUTE);
        break;
      case 'copy in':
        this.gpu.launch(IN, tensor.slotNumber, tensor.slot, this.scope.tensorBytes);
        tensor.number = this.number() + 1;
        this.touch(IN, tensor, tensor.number - 1);
        tensor.copy = ++this.copies.in;
        tensor.slotRead = tensor.copy;
        break;
      case 'record in':
        this.gpu.record(IN, EVENTS.in + tensor.copy);
        break;
      case 'compute waits for in':
        this.passCopy('in', tensor.copy);
        break;
      default:
        throw new Error(`no operation '${operation}'`);
    }
    return true;
  }

  private recordFence(): void {
    const stream = this.mistake === 'the fence is on the compute stream' ? COMPUTE : SIDE;
    this.fences++;
    // An event that is over at once shows that the stream is idle: then there is no fence to wait for.
    this.gpu.record(stream, EVENTS.idle);
    if (this.gpu.isDone(EVENTS.idle) || this.mistake === 'a busy stream is taken for idle') return;
    this.gpu.record(stream, EVENTS.fence + this.fences);
  }

  private passFence(number: number): void {
    if (number <= this.passed + (this.mistake === 'a later fence is taken for one that was waited for' ? 1 : 0)) return;
    this.passed = number;
    this.gpu.wait(COMPUTE, EVENTS.fence + number);
  }

  private passCopy(way: 'out' | 'in', number: number): void {
    if (number <= this.waited[way] + (this.mistake === 'a later copy is taken for one that was waited for' ? 1 : 0)) return;
    this.waited[way] = number;
    this.gpu.wait(COMPUTE, EVENTS[way] + number);
  }

  // ---- the GPU

  private after(stream: number, earlier: number): void {
    const slot = EVENTS.compute + this.events++;
    this.gpu.record(earlier, slot);
    this.gpu.wait(stream, slot);
  }

  private touch(stream: number, tensor: Tensor, number: number): void {
    this.gpu.launch(stream, number, this.allocator.addressOf(tensor.handle), this.allocator.sizeOf(tensor.handle));
  }

  private number(): number {
    this.numbers += 2;
    return this.numbers;
  }

  /** Pinned memory, which the engine does not know of. */
  private hostMemory(): number {
    const bytes = this.scope.tensorBytes;
    const address = this.gpu.reserve(bytes);
    this.gpu.map(address, this.gpu.create(bytes));
    this.gpu.setAccess(address, bytes);
    return address;
  }
}
