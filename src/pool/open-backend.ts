// Opens a backend by the name that the command line and the library use: `sim`, `host` or `cuda`.

import type { Backend } from '../backend/backend.ts';
import { CudaBackend } from '../backend/cuda.ts';
import { HostBackend } from '../backend/host.ts';
import { SimulatedBackend } from '../backend/simulated.ts';

export const BACKEND_NAMES = ['sim', 'host', 'cuda'] as const;
export type BackendName = (typeof BACKEND_NAMES)[number];

export interface OpenBackend {
  readonly backend: Backend;
  /** Most memory it can hold, in bytes; undefined if it has no limit. */
  readonly capacity: number | undefined;
  /** One phrase for people. */
  readonly description: string;
  close(): void;
}

export function openBackend(name: BackendName, capacity?: number): OpenBackend {
  if (name === 'host') {
    const backend = new HostBackend({ capacity });
    return { backend, capacity: backend.capacity, description: "this machine's memory", close: () => backend.close() };
  }
  if (name === 'cuda') {
    const backend = new CudaBackend({ capacity });
    return {
      backend,
      capacity: backend.capacity,
      description: `${backend.gpuName}, CUDA driver ${backend.driverVersion}`,
      close: () => backend.close(),
    };
  }
  return { backend: new SimulatedBackend({ capacity }), capacity, description: 'simulated, with the costs of an H200', close: () => {} };
}
