// The engine as WebAssembly: compiled once, instantiated for every allocator, in Node and in the page.

import { ABI_DIGEST } from '../../abi/engine.ts';
import { type Backend, NO_MEMORY, type StreamEvents } from '../../backend/backend.ts';
import { InvariantError } from '../../base/errors.ts';
import { ENGINE_WASM_BASE64 } from './engine-wasm.ts';

/** A compiled engine. TypeScript declares WebAssembly only with the DOM, which this library does not use. */
export interface EngineModule {
  readonly [Symbol.toStringTag]?: string;
}
interface WebAssemblyNamespace {
  readonly Module: new (bytes: Uint8Array<ArrayBuffer>) => EngineModule;
  readonly Instance: new (module: EngineModule, imports: object) => { readonly exports: unknown };
}
const { WebAssembly } = globalThis as unknown as { readonly WebAssembly: WebAssemblyNamespace };

/** The exports of engine/index.ts that JavaScript uses. Blocks are pointers into the engine's memory. */
export interface EngineExports {
  readonly memory: { readonly buffer: ArrayBuffer };
  abiDigestF64(): number;
  configureF64(index: number, value: number): number;
  settingF64(index: number): number;
  preset(index: number): number;
  mallocBlockF64(bytes: number, stream: number, pool: number): number;
  freeBlock(block: number): number;
  completeBlock(block: number): number;
  recordStreamBlock(block: number, stream: number): number;
  setCapturing(stream: number, on: number): void;
  latestReleaseF64(): number;
  streamsIdleF64(release: number): void;
  memoryIdleF64(release: number): void;
  addressOfF64(block: number): number;
  sizeOfF64(block: number): number;
  emptyCache(): void;
  check(level: number): number;
  statisticF64(index: number): number;
  explanationF64(index: number): number;
  snapshot(): number;
  snapshotAddress(): number;
  buffer(bytes: number): number;
  replay(events: number, count: number, slots: number, addresses: number): number;
  planBuffer(requests: number, turns: number): number;
  planInstallF64(plan: number, footprint: number): number;
  planForget(plan: number): number;
}

const FAILED = -1n;

let compiled: EngineModule | undefined;

function engineModule(): EngineModule {
  compiled ??= new WebAssembly.Module(decodeBase64(ENGINE_WASM_BASE64));
  return compiled;
}

function decodeBase64(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index++) bytes[index] = binary.charCodeAt(index);
  return bytes;
}

/** Compiles another build of the engine; tests use the one with assertions. */
export function compileEngine(bytes: Uint8Array<ArrayBuffer>): EngineModule {
  return new WebAssembly.Module(bytes);
}

/** A new engine on a backend, which may hold at most `allowedBytes`. */
export function instantiateEngine(
  backend: Backend,
  allowedBytes: number = Number.POSITIVE_INFINITY,
  module: EngineModule = engineModule(),
  events?: StreamEvents,
): EngineExports {
  const allowed = (bytes: number) => backend.usedBytes + bytes <= allowedBytes;
  const bytesOf = (value: bigint) => Number(BigInt.asUintN(64, value));
  const given = (value: number) => (value === NO_MEMORY ? FAILED : BigInt(value));
  const done = (worked: boolean) => (worked ? 0 : -1);
  const env = {
    create: (bytes: bigint) => (allowed(bytesOf(bytes)) ? given(backend.create(bytesOf(bytes))) : FAILED),
    release: (handle: bigint) => done(backend.release(bytesOf(handle))),
    reserve: (bytes: bigint) => given(backend.reserve(bytesOf(bytes))),
    unreserve: (address: bigint, bytes: bigint) => done(backend.unreserve(bytesOf(address), bytesOf(bytes))),
    map: (address: bigint, handle: bigint) => done(backend.map(bytesOf(address), bytesOf(handle))),
    setAccess: (address: bigint, bytes: bigint) => done(backend.setAccess(bytesOf(address), bytesOf(bytes))),
    unmap: (address: bigint, bytes: bigint) => done(backend.unmap(bytesOf(address), bytesOf(bytes))),
    // Without events no release is ever over, so nothing is lent; see EngineAllocator.
    eventRecord: (stream: number, slot: number) => done(events?.record(stream, slot) ?? false),
    eventQuery: (slot: number) => (events?.isDone(slot) ? 1 : 0),
    streamWait: (stream: number, slot: number) => done(events?.wait(stream, slot) ?? false),
    // Only builds with assertions import this.
    abort: (_message: number, _file: number, line: number, column: number) => {
      throw new InvariantError(`assertion in the engine failed (line ${line}, column ${column})`);
    },
  };
  const exports = new WebAssembly.Instance(module, { env }).exports as EngineExports;
  if (exports.abiDigestF64() !== ABI_DIGEST) throw new InvariantError('the engine and the code around it are of different versions');
  return exports;
}
