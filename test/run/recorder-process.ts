// A supervisor of rings without a job, for tests that kill it: node build/test/run/recorder-process.js RINGS OUT
import { join } from 'node:path';
import { Supervision } from '../../src/run/supervision.ts';

/** Records into OUT/x.weir, and failures beside it. */
export function supervisionOf(rings: string, out: string): Supervision {
  return new Supervision(
    {
      command: ['test'],
      allocator: 'weir',
      limit: undefined,
      record: join(out, 'x%q{NOTHING}.weir'),
      force: true,
      oomDir: out,
      whatIf: false,
      whatIfEvents: 1,
      metricsPort: undefined,
      metricsHost: '',
      plan: false,
      swap: undefined,
      version: '0',
      environment: {},
    },
    {},
    rings,
    { say() {}, detail() {}, trouble() {}, progress() {}, clearProgress() {} },
  );
}

const [rings, out] = process.argv.slice(2);
if (process.argv[1]?.endsWith('recorder-process.js')) {
  supervisionOf(rings!, out!).start();
  process.stdout.write('ready\n');
}
