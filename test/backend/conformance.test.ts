// Every backend that works without a GPU, through the conformance suite.
import { describe, it } from 'vitest';
import { HostBackend } from '../../src/backend/host.ts';
import { SimulatedBackend } from '../../src/backend/simulated.ts';
import { DEVICE_CHECKS } from './conformance.ts';

const CAPACITY = 64 * 2 ** 20;

describe.each(DEVICE_CHECKS.map((check) => [check.title, check] as const))('a backend %s', (_, check) => {
  it('simulated', () => check.run(new SimulatedBackend({ capacity: CAPACITY })));

  it.skipIf(process.platform !== 'linux')('host', () => {
    const backend = new HostBackend({ capacity: CAPACITY });
    check.run(backend);
    backend.close();
  });
});
