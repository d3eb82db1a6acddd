// Streams and events of a real GPU, and work to put on them. Lending between streams is tested with it.
// It uses the context of the CudaBackend that was opened in the same thread.
import { InputError } from '../base/errors.ts';
import type { StreamEvents } from './backend.ts';
import { loadKoffi } from './ffi.ts';

const SUCCESS = 0;
const NOT_READY = 600;
/** Without this flag, work on the default stream would order all other streams. */
const NON_BLOCKING = 1;
const NO_TIMING = 2;

type Call = (...parameters: unknown[]) => number;

const SIGNATURES = {
  cuStreamCreate: 'int cuStreamCreate(void *, uint32_t)',
  cuStreamDestroy: 'int cuStreamDestroy_v2(uint64_t)',
  cuStreamWaitEvent: 'int cuStreamWaitEvent(uint64_t, uint64_t, uint32_t)',
  cuEventCreate: 'int cuEventCreate(void *, uint32_t)',
  cuEventDestroy: 'int cuEventDestroy_v2(uint64_t)',
  cuEventRecord: 'int cuEventRecord(uint64_t, uint64_t)',
  cuEventQuery: 'int cuEventQuery(uint64_t)',
  cuCtxSynchronize: 'int cuCtxSynchronize()',
  cuMemsetD32Async: 'int cuMemsetD32Async(uint64_t, uint32_t, size_t, uint64_t)',
  cuMemcpyDtoDAsync: 'int cuMemcpyDtoDAsync_v2(uint64_t, uint64_t, size_t, uint64_t)',
  cuMemcpyDtoH: 'int cuMemcpyDtoH_v2(void *, uint64_t, size_t)',
} as const;

export class CudaStreams implements StreamEvents {
  private readonly driver: Record<keyof typeof SIGNATURES, Call>;
  private readonly streams: bigint[] = [];
  /** Events by slot, created when first recorded. */
  private readonly events = new Map<number, bigint>();

  constructor(count: number) {
    const library = loadKoffi().load('libcuda.so.1');
    const functions = Object.entries(SIGNATURES).map(([name, signature]) => [name, library.func(signature)]);
    this.driver = Object.fromEntries(functions) as typeof this.driver;
    const out = new BigUint64Array(1);
    for (let index = 0; index < count; index++) {
      this.need(this.driver.cuStreamCreate(out, NON_BLOCKING), 'make a stream');
      this.streams.push(out[0]!);
    }
  }

  record(stream: number, slot: number): boolean {
    let event = this.events.get(slot);
    if (event === undefined) {
      const out = new BigUint64Array(1);
      if (this.driver.cuEventCreate(out, NO_TIMING) !== SUCCESS) return false;
      event = out[0]!;
      this.events.set(slot, event);
    }
    return this.driver.cuEventRecord(event, this.streams[stream]!) === SUCCESS;
  }

  isDone(slot: number): boolean {
    const event = this.events.get(slot);
    if (event === undefined) return false;
    const result = this.driver.cuEventQuery(event);
    if (result !== NOT_READY) this.need(result, 'query an event');
    return result === SUCCESS;
  }

  wait(stream: number, slot: number): boolean {
    const event = this.events.get(slot);
    return event !== undefined && this.driver.cuStreamWaitEvent(this.streams[stream]!, event, 0) === SUCCESS;
  }

  synchronize(): void {
    this.need(this.driver.cuCtxSynchronize(), 'wait for the GPU');
  }

  /** Queues a fill of the range with one word on the stream. */
  fill(stream: number, address: number, bytes: number, word: number): void {
    this.need(this.driver.cuMemsetD32Async(address, word >>> 0, bytes / 4, this.streams[stream]!), 'fill memory');
  }

  /** Queues a copy within the GPU on the stream. */
  copy(stream: number, to: number, from: number, bytes: number): void {
    this.need(this.driver.cuMemcpyDtoDAsync(to, from, bytes, this.streams[stream]!), 'copy memory');
  }

  /** Waits for all streams, then reads words. */
  read(address: number, words: Uint32Array): void {
    this.synchronize();
    this.need(this.driver.cuMemcpyDtoH(words, address, words.byteLength), 'read memory');
  }

  close(): void {
    this.synchronize();
    for (const event of this.events.values()) this.driver.cuEventDestroy(event);
    for (const stream of this.streams) this.driver.cuStreamDestroy(stream);
  }

  private need(result: number, what: string): void {
    if (result !== SUCCESS) throw new InputError(`the CUDA driver cannot ${what}: error ${result}`);
  }
}
