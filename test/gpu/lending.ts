// Lending on a real GPU: two streams fill and check borrowed memory, a million operations, far behind the program. Nothing
// may be corrupted; with the waits left out on purpose something must be, or the test could not fail.
import { createWeir } from '../../src/allocator/engine/allocator.ts';
import { CudaBackend } from '../../src/backend/cuda.ts';
import { CudaStreams } from '../../src/backend/cuda-streams.ts';
import { MIB } from '../../src/base/bytes.ts';

/** Words checked are copied to a log on the GPU, on the block's own stream, and read when the log is full. */
const LOG_ENTRIES = 1 << 15;
const WORD = 4;
const CAPACITY = 384 * MIB;
/** Filling this takes about half a millisecond, twenty times what the program needs for an operation. */
const SCRATCH = 1536 * MIB;

/** Unmapping waits for what may still use the memory. */
class WaitingDevice extends CudaBackend {
  streams: CudaStreams | undefined;

  override unmap(address: number, bytes: number): boolean {
    this.streams?.synchronize();
    return super.unmap(address, bytes);
  }
}

/** The same events, but nobody waits. */
class CarelessStreams extends CudaStreams {
  override wait(): boolean {
    return true;
  }
}

interface Outcome {
  readonly operations: number;
  readonly checks: number;
  readonly corrupted: number;
  readonly borrows: number;
  readonly waits: number;
  readonly shared: number;
  readonly seconds: number;
}

function hammer(operations: number, careless: boolean): Outcome {
  const backend = new WaitingDevice({ capacity: CAPACITY + 2 * SCRATCH });
  const streams = careless ? new CarelessStreams(2) : new CudaStreams(2);
  backend.streams = streams;
  const log = backend.malloc(2 * LOG_ENTRIES * WORD);
  const scratch = [backend.malloc(SCRATCH), backend.malloc(SCRATCH)];
  const allocator = createWeir({ backend, streams: [0, 1], events: streams }, { eventBytes: 4 * MIB });
  const began = performance.now();
  const live: { block: number; word: number; stream: number }[][] = [[], []];
  const held = [0, 0];
  const expected: number[] = [];
  let checks = 0;
  let corrupted = 0;
  let shared = 0;
  let done = 0;
  let seed = 1;
  const next = (below: number): number => {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
    return (seed >>> 8) % below;
  };
  const readLog = (): void => {
    const words = new Uint32Array(2 * LOG_ENTRIES);
    streams.read(log, words);
    for (const [entry, word] of expected.entries()) {
      checks += 2;
      if (words[2 * entry] !== word || words[2 * entry + 1] !== word) corrupted++;
    }
    expected.length = 0;
  };
  const check = (stream: number, address: number, bytes: number, word: number): void => {
    if (expected.length === LOG_ENTRIES) readLog();
    const entry = log + 2 * expected.length * WORD;
    streams.copy(stream, entry, address, WORD);
    streams.copy(stream, entry + WORD, address + bytes - WORD, WORD);
    expected.push(word);
    done += 2;
  };
  const letGo = (stream: number, index: number): void => {
    const { block, word } = live[stream]!.splice(index, 1)[0]!;
    const address = allocator.addressOf(block);
    const bytes = allocator.sizeOf(block);
    check(stream, address, bytes, word);
    if (next(16) === 0) {
      // Read on the other stream as well, which waits for the contents as a correct program does.
      const other = 1 - stream;
      streams.record(stream, 1 << 20);
      CudaStreams.prototype.wait.call(streams, other, 1 << 20);
      allocator.recordStream(block, other);
      check(other, address, bytes, word);
      shared++;
    }
    held[stream]! -= bytes;
    allocator.free(block);
    allocator.complete(block);
  };
  while (done < operations) {
    // Peaks alternate: while one stream may hold much, the other lets go.
    const turn = Math.floor(done / 997) % 2;
    const stream = next(4) === 0 ? 1 - turn : turn;
    const limit = stream === turn ? CAPACITY * 0.55 : CAPACITY * 0.12;
    while (held[stream]! > limit) letGo(stream, next(live[stream]!.length));
    const block = allocator.malloc((2 + next(20)) * MIB + next(4096) * 512, stream, 0);
    if (block < 0) {
      for (const side of [0, 1]) if (live[side]!.length > 0) letGo(side, 0);
      continue;
    }
    const word = (done * 2654435761 + 1) >>> 0;
    const bytes = allocator.sizeOf(block);
    // The stream falls behind, so that a race has time to happen.
    if (next(16) === 0) streams.fill(stream, scratch[stream]!, SCRATCH, 0);
    streams.fill(stream, allocator.addressOf(block), bytes, word);
    done++;
    held[stream]! += bytes;
    live[stream]!.push({ block, word, stream });
    if (next(3) === 0) letGo(stream, next(live[stream]!.length));
  }
  for (const stream of [0, 1]) while (live[stream]!.length > 0) letGo(stream, 0);
  readLog();
  allocator.check();
  const { borrows, waits } = allocator.statistics;
  allocator.emptyCache();
  streams.close();
  backend.close();
  return { operations: done, checks, corrupted, borrows, waits, shared, seconds: (performance.now() - began) / 1e3 };
}

const asked = Number(process.argv[2] ?? 1_000_000);
const careful = hammer(asked, false);
console.log('with waits   ', JSON.stringify(careful));
const careless = hammer(Math.min(asked, 100_000), true);
console.log('without waits', JSON.stringify(careless));
const failures = [
  ...(careful.corrupted > 0 ? [`${careful.corrupted} blocks were corrupted`] : []),
  ...(careful.borrows === 0 || careful.waits === 0 ? ['nothing was borrowed with a wait'] : []),
  ...(careless.corrupted === 0 ? ['leaving out the waits corrupted nothing, so the test proves nothing'] : []),
];
for (const failure of failures) console.log(`wrong: ${failure}`);
console.log(failures.length === 0 ? 'right' : 'failed');
process.exitCode = failures.length === 0 ? 0 : 1;
