// Every device that works without a GPU, through the conformance suite.
import { describe, it } from 'vitest';
import { HostDevice } from '../../src/device/host.ts';
import { SimulatedDevice } from '../../src/device/simulated.ts';
import { DEVICE_CHECKS } from './conformance.ts';

const CAPACITY = 64 * 2 ** 20;

describe.each(DEVICE_CHECKS.map((check) => [check.title, check] as const))('a device %s', (_, check) => {
  it('simulated', () => check.run(new SimulatedDevice({ capacity: CAPACITY })));

  it.skipIf(process.platform !== 'linux')('host', () => {
    const device = new HostDevice({ capacity: CAPACITY });
    check.run(device);
    device.close();
  });
});
