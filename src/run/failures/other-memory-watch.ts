// Memory of the GPUs of a run that is not PyTorch's, sampled while the job runs: CUDA contexts, NCCL, libraries, other processes.
import { readFileSync } from 'node:fs';
import { type GpuMemory, type Nvml, openNvml } from '../../backend/nvml.ts';
import type { OtherMemory } from '../../trace/trace.ts';
import type { ProcessRecording } from '../rings/process-recording.ts';
import type { Gauges } from '../rings/ring-layout.ts';

const SAMPLE_EVERY_MS = 2000;

/** What is known of a GPU at one moment, such as a failure. */
export interface GpuMoment {
  /** As the driver told the process. */
  readonly deviceFree: number;
  /** By the allocator of the process. */
  readonly reserved: number;
}

interface Sampled {
  last: OtherMemory;
  /** The sample with the most memory that is not PyTorch's. */
  peak: OtherMemory;
}

export class OtherMemoryWatch {
  private readonly environment: NodeJS.ProcessEnv;
  private readonly open: () => Promise<Nvml | undefined>;
  private state: 'closed' | 'opening' | Nvml | undefined = 'closed';
  private sampledAt = Number.NEGATIVE_INFINITY;
  private readonly samples = new Map<ProcessRecording, Map<number, Sampled>>();
  private readonly places = new Map<ProcessRecording, readonly number[] | undefined>();

  /** `environment`: of the job, for CUDA_VISIBLE_DEVICES. */
  constructor(environment: NodeJS.ProcessEnv, open: () => Promise<Nvml | undefined> = openNvml) {
    this.environment = environment;
    this.open = open;
  }

  /** Samples the GPUs in use, if the last sample is old enough. */
  look(processes: readonly ProcessRecording[]): void {
    const running = processes.filter((process) => !process.isFinished && process.gauges.size > 0);
    if (running.length === 0 || this.state === undefined || this.state === 'opening') return;
    if (this.state === 'closed') {
      this.state = 'opening';
      void this.open().then((nvml) => {
        this.state = nvml;
      });
      return;
    }
    if (performance.now() - this.sampledAt < SAMPLE_EVERY_MS) return;
    this.sampledAt = performance.now();
    const memory = new Map<number, GpuMemory | undefined>();
    for (const process of running) this.sample(this.state, process, memory);
  }

  /** The last sample. `moment`: what is known of another moment, for which figures of now are wrong. Undefined: nothing is known. */
  of(process: ProcessRecording, gpu: number, moment?: GpuMoment): OtherMemory | undefined {
    const last = this.samples.get(process)?.get(gpu)?.last;
    const total = process.gauges.get(gpu)?.total;
    if (!moment || total === undefined || total < moment.deviceFree) return last;
    const used = total - moment.deviceFree;
    const reserved = Math.min(used, moment.reserved);
    // What the process has besides does not change with what it reserves.
    const own = last?.process === undefined ? undefined : Math.max(0, last.process - last.reserved);
    return { total, used, reserved, ...(own !== undefined && { process: Math.min(used, reserved + own) }) };
  }

  peakOf(process: ProcessRecording, gpu: number): OtherMemory | undefined {
    return this.samples.get(process)?.get(gpu)?.peak;
  }

  private sample(nvml: Nvml, process: ProcessRecording, memory: Map<number, GpuMemory | undefined>): void {
    if (!this.places.has(process)) this.places.set(process, visiblePlaces(process.owner.pid, nvml, this.environment));
    const places = this.places.get(process);
    for (const [gpu, gauges] of process.gauges) {
      const place = places?.[gpu];
      if (place === undefined) continue;
      if (!memory.has(place)) memory.set(place, nvml.memoryOf(place));
      const found = memory.get(place);
      // Another size: it is not the GPU that we take it for.
      if (found && isSameSize(found, gauges)) this.note(process, gpu, found, gauges);
    }
  }

  private note(process: ProcessRecording, gpu: number, { total, free, processes }: GpuMemory, { reserved }: Gauges): void {
    const own = processes.get(process.owner.pid);
    const used = total - free;
    const last = { total, used, reserved: Math.min(used, reserved), ...(own !== undefined && { process: own }) };
    let sampled = this.samples.get(process);
    if (!sampled) {
      sampled = new Map();
      this.samples.set(process, sampled);
    }
    const before = sampled.get(gpu);
    const isMore = !before || last.used - last.reserved > before.peak.used - before.peak.reserved;
    sampled.set(gpu, { last, peak: isMore ? last : before.peak });
  }
}

/** The driver keeps a little back, and tells it in one place and not in the other. More free than there is tells nothing. */
function isSameSize({ total, free }: GpuMemory, gauges: Gauges): boolean {
  return free <= total && gauges.total > 0 && Math.abs(total - gauges.total) < 0.02 * total;
}

/** Which GPU of the machine each GPU of the process is; undefined: that cannot be said. */
export function visiblePlaces(pid: number, { gpus }: Pick<Nvml, 'gpus'>, environment: NodeJS.ProcessEnv): readonly number[] | undefined {
  const visible = variableOf(pid, 'CUDA_VISIBLE_DEVICES') ?? environment['CUDA_VISIBLE_DEVICES'];
  if (visible === undefined) return gpus.map((_, index) => index);
  const places: number[] = [];
  for (const word of visible.split(',').map((part) => part.trim())) {
    const place = /^\d+$/.test(word) ? Number(word) : gpus.findIndex(({ uuid }) => word.startsWith('GPU-') && uuid.startsWith(word));
    // As CUDA: what follows a word that names no GPU is not seen. Parts of a GPU (MIG) are not looked at.
    if (place < 0 || place >= gpus.length) break;
    places.push(place);
  }
  return places.length > 0 ? places : undefined;
}

/** A launcher may give each rank another GPU. What the program itself has set cannot be seen. */
function variableOf(pid: number, name: string): string | undefined {
  try {
    const words = readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0');
    return words.find((word) => word.startsWith(`${name}=`))?.slice(name.length + 1);
  } catch {
    return undefined;
  }
}
