// A device by name: what the command line and the library call `sim`, `host` and `cuda`.
import { CudaDevice } from '../device/cuda.ts';
import type { Device } from '../device/device.ts';
import { HostDevice } from '../device/host.ts';
import { SimulatedDevice } from '../device/simulated.ts';

export const DEVICE_NAMES = ['sim', 'host', 'cuda'] as const;
export type DeviceName = (typeof DEVICE_NAMES)[number];

export interface OpenDevice {
  readonly device: Device;
  /** Memory it can hold; undefined without a limit. */
  readonly capacity: number | undefined;
  /** What it is, for people. */
  readonly description: string;
  close(): void;
}

export function openDevice(name: DeviceName, capacity?: number): OpenDevice {
  if (name === 'host') {
    const device = new HostDevice({ capacity });
    return { device, capacity: device.capacity, description: "this machine's memory", close: () => device.close() };
  }
  if (name === 'cuda') {
    const device = new CudaDevice({ capacity });
    return {
      device,
      capacity: device.capacity,
      description: `${device.gpuName}, CUDA driver ${device.driverVersion}`,
      close: () => device.close(),
    };
  }
  return { device: new SimulatedDevice({ capacity }), capacity, description: 'simulated, with the costs of an H200', close: () => {} };
}
