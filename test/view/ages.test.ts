// Ages as people read them.
import { expect, it } from 'vitest';
import { formatAge } from '../../src/view/ages.ts';

it.each([
  [0, 'new'],
  [0.4, 'new'],
  [1, '1 µs'],
  [942.3, '942 µs'],
  [999.7, '1.00 ms'],
  [1473, '1.47 ms'],
  [99_420, '99.4 ms'],
  [12_345_678, '12.3 s'],
  [59_990_000, '1.00 min'],
  [252e6, '4.20 min'],
  [3.6e9 * 3.1, '3.10 h'],
])('%d µs is %s', (us, words) => {
  expect(formatAge(us)).toBe(words);
});
