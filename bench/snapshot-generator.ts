// Generates a PyTorch snapshot of any size: a transformer trained with varying lengths on two streams, with call stacks.
// It runs on our model of PyTorch's allocator, so addresses and segment events are as PyTorch records them.
import { closeSync, openSync, writeSync } from 'node:fs';
import { PyTorchAllocator } from '../src/allocator/pytorch/allocator.ts';
import { DEFAULT_SETTINGS } from '../src/allocator/pytorch/settings.ts';
import { SimulatedBackend } from '../src/backend/simulated.ts';

const MIB = 2 ** 20;
const LAYERS = 24;
const STACK_DEPTH = 20;
const ACTIONS = ['alloc', 'free_requested', 'free_completed', 'segment_alloc', 'segment_free', 'segment_map', 'segment_unmap'] as const;

/** Writes a snapshot of about `bytes` bytes and returns its number of events, which is largest without stacks. */
export function generateSnapshot(path: string, bytes: number, stackDepth: number = STACK_DEPTH): number {
  const pickle = new SnapshotPickle(path, stackDepth);
  const random = mulberry32(1);
  let time = 1_700_000_000_000_000;
  const segmentEvents: [number, number, number][] = [];
  const allocator = new PyTorchAllocator(
    {
      backend: new SimulatedBackend(),
      streams: [0, 0x5000],
      onSegment: (kind, address, size) => segmentEvents.push([kind - 1, address, size]),
    },
    DEFAULT_SETTINGS,
  );
  const streams = [0, 0x5000];
  const record = (action: number, address: number, size: number, stream: number, site: number) => {
    time += 3 + Math.floor(random() * 40);
    pickle.event(ACTIONS[action]!, address, size, streams[stream]!, time, site);
  };
  const malloc = (size: number, stream: number, site: number): { block: number; size: number; stream: number; site: number } => {
    const block = allocator.malloc(size, stream, 0);
    for (const [action, address, segmentSize] of segmentEvents.splice(0)) record(action, address, segmentSize, stream, site);
    record(0, allocator.addressOf(block), size, stream, site);
    return { block, size, stream, site };
  };
  const free = ({ block, size, stream, site }: ReturnType<typeof malloc>) => {
    const address = allocator.addressOf(block);
    allocator.free(block);
    record(1, address, size, stream, site);
    record(2, address, size, stream, site);
    allocator.complete(block);
  };

  const parameters = Array.from({ length: LAYERS * 4 }, (_, index) => malloc(8 * MIB + index * 512, 0, index % 50));
  let step = 0;
  while (pickle.bytes < bytes) {
    step++;
    const tokens = 512 + Math.floor(random() * 1536);
    const activations: ReturnType<typeof malloc>[][] = [];
    for (let layer = 0; layer < LAYERS; layer++) {
      const site = layer * 40;
      const kept = [1, 3, 4, 4].map((width, index) => malloc(tokens * width * 2048 + index * 64, 0, site + index));
      for (let scratch = 0; scratch < 6; scratch++) free(malloc(tokens * (1 + Math.floor(random() * 4)) * 1024, 0, site + 10 + scratch));
      if (layer % 4 === 0) free(malloc(20 * MIB, 1, site + 20));
      activations.push(kept);
    }
    const gradients: ReturnType<typeof malloc>[] = [];
    for (let layer = LAYERS - 1; layer >= 0; layer--) {
      const site = layer * 40 + 25;
      const incoming = malloc(tokens * 4096, 0, site);
      for (const kept of activations[layer]!.reverse()) {
        const scratch = malloc(kept.size, 0, site + 1);
        free(kept);
        free(scratch);
      }
      gradients.push(malloc(8 * MIB, 0, site + 2));
      free(incoming);
    }
    for (const gradient of gradients) {
      free(malloc(512, 0, 990));
      free(gradient);
    }
  }
  void parameters;
  pickle.finish(
    allocator.layout().map((segment) => ({ ...segment, stream: streams[segment.stream]! })),
    step,
  );
  return pickle.events;
}

function mulberry32(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

type Layout = ReturnType<PyTorchAllocator['layout']>;

/** Writes a pickle to disk as CPython does: protocol 4, with a memo. */
class SnapshotPickle {
  events = 0;
  private readonly file: number;
  private buffer = Buffer.alloc(1 << 20);
  private length = 0;
  private written = 0;
  private memoized = 0;
  private readonly strings = new Map<string, number>();
  private readonly frames = new Map<number, number>();

  private readonly stackDepth: number;

  constructor(path: string, stackDepth: number) {
    this.stackDepth = stackDepth;
    this.file = openSync(path, 'w');
    this.op(0x80, 4);
    this.emptyDict();
    this.op(0x28);
    this.string('device_traces');
    this.emptyList();
    this.op(0x28);
    this.emptyList();
    this.op(0x28);
  }

  get bytes(): number {
    return this.written + this.length;
  }

  event(action: string, address: number, size: number, stream: number, time: number, site: number): void {
    if (this.events > 0 && this.events % 1000 === 0) this.op(0x65, 0x28);
    this.events++;
    this.emptyDict();
    this.op(0x28);
    this.string('action');
    this.string(action);
    this.string('addr');
    this.integer(address);
    this.string('size');
    this.integer(size);
    this.string('stream');
    this.integer(stream);
    this.string('time_us');
    this.integer(time);
    this.string('compile_context');
    this.freshString('N/A');
    this.string('user_metadata');
    this.freshString('');
    this.string('frames');
    this.emptyList();
    this.op(0x28);
    for (let depth = 0; depth < this.stackDepth; depth++)
      this.frame(depth < 4 ? site * 8 + depth : 8192 + (Math.floor(site / 40) + depth * 32));
    this.op(0x65, 0x75);
  }

  finish(segments: Layout, steps: number): void {
    this.op(0x65, 0x65);
    this.string('segments');
    this.emptyList();
    this.op(0x28);
    for (const segment of segments) this.segment(segment);
    this.op(0x65);
    this.string('allocator_settings');
    this.emptyDict();
    this.op(0x28);
    this.string('PYTORCH_CUDA_ALLOC_CONF');
    this.freshString('');
    this.string('expandable_segments');
    this.op(0x89);
    this.op(0x75);
    this.string('external_annotations');
    this.emptyList();
    this.string('steps');
    this.integer(steps);
    this.op(0x75, 0x2e);
    this.flush();
    closeSync(this.file);
  }

  private segment(segment: Layout[number]): void {
    this.emptyDict();
    this.op(0x28);
    const fields: [string, number][] = [
      ['backend', 0],
      ['address', segment.address],
      ['total_size', segment.size],
      ['stream', segment.stream],
    ];
    for (const [name, value] of fields) {
      this.string(name);
      this.integer(value);
    }
    this.string('segment_type');
    this.string(segment.small ? 'small' : 'large');
    this.string('blocks');
    this.emptyList();
    this.op(0x28);
    for (const block of segment.blocks) {
      this.emptyDict();
      this.op(0x28);
      this.string('address');
      this.integer(block.address);
      this.string('size');
      this.integer(block.size);
      this.string('requested_size');
      this.integer(block.requested);
      this.string('state');
      this.string(block.state === 'free' ? 'inactive' : 'active_allocated');
      this.op(0x75);
    }
    this.op(0x65, 0x75);
  }

  private frame(id: number): void {
    const known = this.frames.get(id);
    if (known !== undefined) {
      this.get(known);
      return;
    }
    this.emptyDict();
    this.frames.set(id, this.memoized - 1);
    this.op(0x28);
    this.string('filename');
    this.freshString(`/opt/venv/lib/python3.12/site-packages/models/module_${id % 211}.py`);
    this.string('name');
    this.freshString(`function_${id}`);
    this.string('line');
    this.integer(id % 1500);
    this.op(0x75);
  }

  private emptyDict(): void {
    this.op(0x7d, 0x94);
    this.memoized++;
  }

  private emptyList(): void {
    this.op(0x5d, 0x94);
    this.memoized++;
  }

  /** A string that is repeated: written once, then taken from the memo. */
  private string(text: string): void {
    const known = this.strings.get(text);
    if (known !== undefined) {
      this.get(known);
      return;
    }
    this.freshString(text);
    this.strings.set(text, this.memoized - 1);
  }

  private freshString(text: string): void {
    this.op(0x8c, text.length);
    this.room(text.length);
    this.length += this.buffer.write(text, this.length, 'latin1');
    this.op(0x94);
    this.memoized++;
  }

  private get(index: number): void {
    if (index < 256) {
      this.op(0x68, index);
      return;
    }
    this.op(0x6a);
    this.room(4);
    this.length = this.buffer.writeUInt32LE(index, this.length);
  }

  private integer(value: number): void {
    if (value < 256) this.op(0x4b, value);
    else if (value < 65536) {
      this.op(0x4d, value & 255, value >> 8);
    } else if (value < 2 ** 31) {
      this.op(0x4a);
      this.room(4);
      this.length = this.buffer.writeInt32LE(value, this.length);
    } else {
      const bytes = Math.floor(Math.log2(value) / 8 + 1 / 8) + 1;
      this.op(0x8a, bytes);
      this.room(8);
      this.buffer.writeBigUInt64LE(BigInt(value), this.length);
      this.length += bytes;
    }
  }

  private op(...codes: number[]): void {
    this.room(codes.length);
    for (const code of codes) this.buffer[this.length++] = code;
  }

  private room(bytes: number): void {
    if (this.length + bytes + 8 > this.buffer.length) this.flush();
  }

  private flush(): void {
    for (let done = 0; done < this.length; ) done += writeSync(this.file, this.buffer, done, this.length - done);
    this.written += this.length;
    this.length = 0;
  }
}
