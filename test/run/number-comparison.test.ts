// Numbers in the output of a command, as `weir run --check` compares them.
import { expect, it } from 'vitest';
import { NumberReader } from '../../src/run/check/number-comparison.ts';

it('reads a line with more numbers than a call can take arguments', () => {
  const line = new TextEncoder().encode(`${'1 '.repeat(400_000)}\n`);
  for (const pattern of [/1/, /(.*)/]) {
    const reader = new NumberReader(pattern);
    reader.push(line);
    expect(reader.finish().values.length).toBeGreaterThanOrEqual(400_000);
  }
});
