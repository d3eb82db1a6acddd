import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { crc32 } from '../../src/base/crc32.ts';

describe('crc32', () => {
  it('gives the check value of the standard', () => {
    expect(crc32(new TextEncoder().encode('123456789'))).toBe(0xcbf43926);
    expect(crc32(new Uint8Array())).toBe(0);
  });

  it('agrees with the definition, bit by bit, over any range', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 100 }), fc.nat(100), fc.nat(100), (bytes, a, b) => {
        const from = Math.min(a, b, bytes.length);
        const to = Math.min(Math.max(a, b), bytes.length);
        expect(crc32(bytes, from, to)).toBe(byDefinition(bytes.subarray(from, to)));
      }),
    );
  });

  it('can be continued', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 50 }), fc.uint8Array({ maxLength: 50 }), (head, tail) => {
        const whole = Uint8Array.of(...head, ...tail);
        expect(crc32(tail, 0, tail.length, crc32(head))).toBe(crc32(whole));
      }),
    );
  });
});

function byDefinition(bytes: Uint8Array): number {
  let crc = -1;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  return ~crc >>> 0;
}
