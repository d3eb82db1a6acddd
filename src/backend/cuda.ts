// The backend of a real GPU. It loads the CUDA driver (libcuda.so.1) at run time, so no toolkit is needed.
// Every call is timed by the host's clock, including the cost of the FFI.
import { roundUp } from '../base/bytes.ts';
import { InputError, InvariantError } from '../base/errors.ts';
import { type Backend, DriverLedger, GRANULARITY, NO_MEMORY } from './backend.ts';
import { loadKoffi } from './ffi.ts';
import { Mappings } from './mappings.ts';
import type { TouchableMemory } from './memory.ts';

const SUCCESS = 0;

type Call = (...parameters: unknown[]) => number;

/** The driver functions we call, by their names in libcuda. */
const SIGNATURES = {
  cuInit: 'int cuInit(uint32_t)',
  cuDriverGetVersion: 'int cuDriverGetVersion(void *)',
  cuDeviceGet: 'int cuDeviceGet(void *, int)',
  cuDeviceGetName: 'int cuDeviceGetName(void *, int, int)',
  cuDevicePrimaryCtxRetain: 'int cuDevicePrimaryCtxRetain(void *, int)',
  cuDevicePrimaryCtxRelease: 'int cuDevicePrimaryCtxRelease_v2(int)',
  cuCtxSetCurrent: 'int cuCtxSetCurrent(uint64_t)',
  cuCtxSynchronize: 'int cuCtxSynchronize()',
  cuMemGetInfo: 'int cuMemGetInfo_v2(void *, void *)',
  cuMemAlloc: 'int cuMemAlloc_v2(void *, size_t)',
  cuMemFree: 'int cuMemFree_v2(uint64_t)',
  cuMemAddressReserve: 'int cuMemAddressReserve(void *, size_t, size_t, uint64_t, uint64_t)',
  cuMemAddressFree: 'int cuMemAddressFree(uint64_t, size_t)',
  cuMemCreate: 'int cuMemCreate(void *, size_t, void *, uint64_t)',
  cuMemRelease: 'int cuMemRelease(uint64_t)',
  cuMemMap: 'int cuMemMap(uint64_t, size_t, size_t, uint64_t, uint64_t)',
  cuMemSetAccess: 'int cuMemSetAccess(uint64_t, size_t, void *, size_t)',
  cuMemUnmap: 'int cuMemUnmap(uint64_t, size_t)',
  cuMemsetD32: 'int cuMemsetD32_v2(uint64_t, uint32_t, size_t)',
  cuMemcpyDtoH: 'int cuMemcpyDtoH_v2(void *, uint64_t, size_t)',
  cuGetErrorName: 'int cuGetErrorName(int, void *)',
} as const;

type Driver = Record<keyof typeof SIGNATURES, Call>;

export interface CudaBackendOptions {
  /** Index of the GPU as the driver numbers them (CUDA_VISIBLE_DEVICES applies). */
  readonly gpu?: number | undefined;
  /** Most memory to hold, in bytes. Default: what is free on the GPU. */
  readonly capacity?: number | undefined;
}

export class CudaBackend implements Backend, TouchableMemory {
  readonly name = 'cuda';
  readonly ledger: DriverLedger = new DriverLedger();
  readonly gpuName: string;
  readonly driverVersion: string;
  readonly capacity: number;
  private readonly driver: Driver;
  private readonly gpu: number;
  /** CUmemAllocationProp: pinned memory on this GPU. */
  private readonly properties = new Uint8Array(64);
  /** CUmemAccessDesc: this GPU may read and write. */
  private readonly access = new Uint8Array(16);
  private used = 0;
  /** Driver handle and size by our handle; undefined once released. */
  private readonly handles: ({ readonly value: bigint; readonly bytes: number } | undefined)[] = [];
  private readonly mallocs = new Map<number, number>();
  private readonly reservations = new Map<number, number>();
  private readonly mappings = new Mappings();
  private readonly out = new BigUint64Array(2);
  private readonly word = new Uint32Array(1);

  constructor(options: CudaBackendOptions = {}) {
    this.driver = loadDriver();
    this.gpu = options.gpu ?? 0;
    this.need(this.driver.cuInit(0), 'start');
    const device = new Int32Array(1);
    this.need(this.driver.cuDeviceGet(device, this.gpu), `find GPU ${this.gpu}`);
    const context = new BigUint64Array(1);
    this.need(this.driver.cuDevicePrimaryCtxRetain(context, device[0]), 'make a context');
    this.need(this.driver.cuCtxSetCurrent(context[0]), 'use the context');
    const view = new DataView(this.properties.buffer);
    view.setInt32(0, 1, true);
    view.setInt32(8, 1, true);
    view.setInt32(12, this.gpu, true);
    const access = new DataView(this.access.buffer);
    access.setInt32(0, 1, true);
    access.setInt32(4, this.gpu, true);
    access.setInt32(8, 3, true);
    this.gpuName = this.readName(device[0]!);
    this.driverVersion = this.readVersion();
    this.capacity = options.capacity ?? this.memoryInfo().free;
  }

  get usedBytes(): number {
    return this.used;
  }

  memoryInfo(): { free: number; total: number } {
    const free = new BigUint64Array(1);
    const total = new BigUint64Array(1);
    this.need(this.driver.cuMemGetInfo(free, total), 'query free memory');
    return { free: Number(free[0]), total: Number(total[0]) };
  }

  /** Releases all memory and addresses and the GPU's context. The backend cannot be used afterwards. */
  close(): void {
    this.driver.cuCtxSynchronize();
    for (const [address, bytes] of this.mappings.ranges()) this.driver.cuMemUnmap(address, bytes);
    for (const held of this.handles) if (held) this.driver.cuMemRelease(held.value);
    for (const [address, bytes] of this.reservations) this.driver.cuMemAddressFree(address, bytes);
    for (const address of this.mallocs.keys()) this.driver.cuMemFree(address);
    this.driver.cuDevicePrimaryCtxRelease(this.gpu);
  }

  malloc(bytes: number): number {
    if (!this.fits(bytes)) return NO_MEMORY;
    if (this.timed('malloc', this.driver.cuMemAlloc, this.out, bytes) !== SUCCESS) return NO_MEMORY;
    const address = Number(this.out[0]);
    this.mallocs.set(address, bytes);
    this.used += roundUp(bytes, GRANULARITY);
    return address;
  }

  free(address: number, bytes: number): void {
    if (this.mallocs.get(address) !== bytes) throw new InvariantError(`cannot free ${bytes} bytes at ${address}: no such allocation`);
    this.mallocs.delete(address);
    this.need(this.timed('free', this.driver.cuMemFree, address), 'free memory');
    this.used -= roundUp(bytes, GRANULARITY);
  }

  reserve(bytes: number, wanted?: number): number {
    const result = this.timed('reserve', this.driver.cuMemAddressReserve, this.out, bytes, 0, wanted ?? 0, 0);
    if (result !== SUCCESS) return NO_MEMORY;
    const address = Number(this.out[0]);
    this.reservations.set(address, bytes);
    return address;
  }

  unreserve(address: number, bytes: number): boolean {
    if (this.timed('reserve', this.driver.cuMemAddressFree, address, bytes) !== SUCCESS) return false;
    this.reservations.delete(address);
    return true;
  }

  create(bytes: number): number {
    if (!this.fits(bytes)) return NO_MEMORY;
    if (this.timed('create', this.driver.cuMemCreate, this.out, bytes, this.properties, 0) !== SUCCESS) return NO_MEMORY;
    this.used += bytes;
    return this.handles.push({ value: this.out[0]!, bytes }) - 1;
  }

  release(handle: number): boolean {
    const held = this.handles[handle];
    if (!held || this.timed('release', this.driver.cuMemRelease, held.value) !== SUCCESS) return false;
    this.handles[handle] = undefined;
    this.used -= held.bytes;
    return true;
  }

  map(address: number, handle: number): boolean {
    const held = this.handles[handle];
    if (!held || this.mappings.has(address)) return false;
    if (this.timed('map', this.driver.cuMemMap, address, held.bytes, 0, held.value, 0) !== SUCCESS) return false;
    this.mappings.add(address, handle, held.bytes);
    return true;
  }

  setAccess(address: number, bytes: number): boolean {
    if (!this.mappings.tiling(address, bytes)) return false;
    return this.timed('setAccess', this.driver.cuMemSetAccess, address, bytes, this.access, 1) === SUCCESS;
  }

  unmap(address: number, bytes: number): boolean {
    const starts = this.mappings.tiling(address, bytes);
    if (!starts || this.timed('unmap', this.driver.cuMemUnmap, address, bytes) !== SUCCESS) return false;
    for (const start of starts) this.mappings.remove(start);
    return true;
  }

  fill(address: number, bytes: number, word: number): void {
    this.need(this.driver.cuMemsetD32(address, word >>> 0, bytes / 4), 'fill memory');
    // Otherwise the next memory call would wait for the fill, and the wait would count as its cost.
    this.need(this.driver.cuCtxSynchronize(), 'wait for the GPU');
  }

  readWord(address: number): number {
    this.need(this.driver.cuMemcpyDtoH(this.word, address, 4), 'read memory');
    return this.word[0]!;
  }

  private fits(bytes: number): boolean {
    return this.used + roundUp(bytes, GRANULARITY) <= this.capacity;
  }

  private timed(call: Parameters<DriverLedger['charge']>[0], run: Call, ...parameters: unknown[]): number {
    const started = performance.now();
    const result = run(...parameters);
    this.ledger.charge(call, (performance.now() - started) * 1000);
    return result;
  }

  private need(result: number, what: string): void {
    if (result !== SUCCESS) throw new InputError(`the CUDA driver cannot ${what}: ${errorName(this.driver, result)}`);
  }

  private readName(device: number): string {
    const name = new Uint8Array(128);
    this.need(this.driver.cuDeviceGetName(name, name.length, device), 'name the GPU');
    return new TextDecoder().decode(name.subarray(0, name.indexOf(0)));
  }

  private readVersion(): string {
    const version = new Int32Array(1);
    this.need(this.driver.cuDriverGetVersion(version), 'query its version');
    return `${Math.floor(version[0]! / 1000)}.${Math.floor((version[0]! % 1000) / 10)}`;
  }
}

function errorName(driver: Driver, result: number): string {
  const pointer = new BigUint64Array(1);
  if (driver.cuGetErrorName(result, pointer) !== SUCCESS || pointer[0] === 0n) return `error ${result}`;
  return String(loadKoffi().decode(pointer[0], 'char', -1));
}

let loaded: Driver | undefined;

function loadDriver(): Driver {
  if (loaded) return loaded;
  if (process.platform !== 'linux') throw new InputError('--backend cuda needs Linux; use --backend sim');
  const koffi = loadKoffi();
  let library: ReturnType<typeof koffi.load>;
  try {
    library = koffi.load('libcuda.so.1');
  } catch {
    throw new InputError('there is no CUDA driver on this machine (libcuda.so.1 does not load); use --backend sim or --backend host');
  }
  const functions = Object.entries(SIGNATURES).map(([name, signature]) => [name, library.func(signature)]);
  loaded = Object.fromEntries(functions) as Driver;
  return loaded;
}
