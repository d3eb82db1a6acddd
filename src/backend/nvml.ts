// Memory of GPUs as NVIDIA's management library tells it: of the whole GPU, and of each process. Part of every driver, and loaded by name.
// If it is not there, or refuses, nothing is known; nothing fails.
import { loadKoffi } from './ffi.ts';

export interface GpuMemory {
  readonly total: number;
  readonly free: number;
  /** Bytes by process; a container may not see them. */
  readonly processes: ReadonlyMap<number, number>;
}

export interface Nvml {
  /** GPUs of this machine, in the order of their places on the bus. */
  readonly gpus: readonly { readonly uuid: string }[];
  /** Undefined: the GPU does not answer. */
  memoryOf(gpu: number): GpuMemory | undefined;
}

const SUCCESS = 0;
const TOO_SMALL = 7;
const LIBRARY = 'libnvidia-ml.so.1';
/** nvmlMemory_t: total, free, used. */
const MEMORY_WORDS = 3;
/** nvmlProcessInfo_t: u32 pid, padding, u64 bytes, two u32. */
const PROCESS_BYTES = 24;
const NOT_AVAILABLE = 0xffff_ffff_ffff_ffffn;
const UUID_BYTES = 96;
const MOST_GPUS = 64;
const MOST_PROCESSES = 1024;

interface Functions {
  nvmlInit_v2: { async(done: (error: unknown, result: number) => void): void };
  nvmlDeviceGetCount_v2(count: Uint32Array): number;
  nvmlDeviceGetHandleByIndex_v2(index: number, handle: BigUint64Array): number;
  nvmlDeviceGetUUID(handle: bigint, text: Uint8Array, length: number): number;
  nvmlDeviceGetMemoryInfo(handle: bigint, memory: BigUint64Array): number;
  nvmlDeviceGetComputeRunningProcesses_v3(handle: bigint, count: Uint32Array, found: Uint8Array): number;
}

const SIGNATURES: Record<keyof Functions, string> = {
  nvmlInit_v2: 'int nvmlInit_v2()',
  nvmlDeviceGetCount_v2: 'int nvmlDeviceGetCount_v2(_Out_ uint32_t *count)',
  nvmlDeviceGetHandleByIndex_v2: 'int nvmlDeviceGetHandleByIndex_v2(uint32_t index, _Out_ uint64_t *handle)',
  nvmlDeviceGetUUID: 'int nvmlDeviceGetUUID(uint64_t handle, _Out_ uint8_t *text, uint32_t length)',
  nvmlDeviceGetMemoryInfo: 'int nvmlDeviceGetMemoryInfo(uint64_t handle, _Out_ uint64_t *memory)',
  nvmlDeviceGetComputeRunningProcesses_v3:
    'int nvmlDeviceGetComputeRunningProcesses_v3(uint64_t handle, _Inout_ uint32_t *count, _Out_ uint8_t *found)',
};

/** Undefined if this machine has no such library, or no GPU. Starting it may take a second, so that happens in a thread. */
export async function openNvml(library: string = LIBRARY): Promise<Nvml | undefined> {
  try {
    const opened = loadKoffi().load(library);
    const found = Object.entries(SIGNATURES).map(([name, signature]) => [name, opened.func(signature)]);
    const functions = Object.fromEntries(found) as Functions;
    const result = await new Promise<number>((resolve) => functions.nvmlInit_v2.async((error, code) => resolve(error ? -1 : code)));
    return result === SUCCESS ? nvmlOf(functions) : undefined;
  } catch {
    return undefined;
  }
}

function nvmlOf(functions: Functions): Nvml | undefined {
  const count = new Uint32Array(1);
  if (functions.nvmlDeviceGetCount_v2(count) !== SUCCESS || count[0] === 0) return undefined;
  const handles: (bigint | undefined)[] = [];
  const gpus: { uuid: string }[] = [];
  for (let index = 0; index < Math.min(MOST_GPUS, count[0]!); index++) {
    const handle = new BigUint64Array(1);
    const text = new Uint8Array(UUID_BYTES);
    const isThere = functions.nvmlDeviceGetHandleByIndex_v2(index, handle) === SUCCESS;
    handles.push(isThere ? handle[0] : undefined);
    const hasName = isThere && functions.nvmlDeviceGetUUID(handle[0]!, text, UUID_BYTES) === SUCCESS;
    gpus.push({ uuid: hasName ? Buffer.from(text.subarray(0, Math.max(0, text.indexOf(0)))).toString('latin1') : '' });
  }
  return {
    gpus,
    memoryOf(gpu) {
      const handle = handles[gpu];
      const memory = new BigUint64Array(MEMORY_WORDS);
      if (handle === undefined || functions.nvmlDeviceGetMemoryInfo(handle, memory) !== SUCCESS) return undefined;
      return { total: Number(memory[0]), free: Number(memory[1]), processes: processesOf(functions, handle) };
    },
  };
}

function processesOf(functions: Functions, handle: bigint): Map<number, number> {
  const bytes = new Map<number, number>();
  const count = new Uint32Array([MOST_PROCESSES]);
  const found = new Uint8Array(MOST_PROCESSES * PROCESS_BYTES);
  const result = functions.nvmlDeviceGetComputeRunningProcesses_v3(handle, count, found);
  if (result !== SUCCESS && result !== TOO_SMALL) return bytes;
  const view = new DataView(found.buffer);
  for (let index = 0; index < Math.min(count[0]!, MOST_PROCESSES); index++) {
    const used = view.getBigUint64(index * PROCESS_BYTES + 8, true);
    if (used !== NOT_AVAILABLE) bytes.set(view.getUint32(index * PROCESS_BYTES, true), Number(used));
  }
  return bytes;
}
