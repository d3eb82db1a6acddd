// Writes zstd frames by hand: as small as an attacker would, or with blocks that no packer writes.
import { Xxh64 } from '../../src/io/xxh64.ts';

export interface ZstdOptions {
  /** Byte of the frame header: 2^(10 + high 5 bits) bytes, plus eighths in the low 3. */
  readonly window?: number;
  /** Whether the checksum of raw and repeated blocks follows the last block. */
  readonly hasChecksum?: boolean;
}

export type ZstdBlock =
  | { readonly raw: Uint8Array }
  /** `count` blocks of 128 KiB, four bytes each. */
  | { readonly repeat: number; readonly count: number }
  /** The content of a compressed block. */
  | { readonly packed: Uint8Array };

const BLOCK = 2 ** 17;

export function zstdFrame(blocks: readonly ZstdBlock[], options: ZstdOptions = {}): Uint8Array {
  const out: Uint8Array[] = [Uint8Array.of(0x28, 0xb5, 0x2f, 0xfd, options.hasChecksum ? 4 : 0, options.window ?? 0x58)];
  const checksum = new Xxh64();
  for (const block of blocks) {
    if ('raw' in block) {
      out.push(header(0, block.raw.length), block.raw);
      checksum.push(block.raw);
    } else if ('packed' in block) out.push(header(2, block.packed.length), block.packed);
    else {
      const one = Buffer.from([...header(1, BLOCK), block.repeat]);
      out.push(Buffer.alloc(4 * block.count, one));
      if (options.hasChecksum) for (let index = 0; index < block.count; index++) checksum.push(new Uint8Array(BLOCK).fill(block.repeat));
    }
  }
  // An empty block ends the frame.
  out.push(Uint8Array.of(1, 0, 0));
  if (options.hasChecksum) out.push(new Uint8Array(Uint32Array.of(checksum.low()).buffer));
  return new Uint8Array(Buffer.concat(out));
}

/** A frame that decoders pass over. */
export function skippableFrame(bytes: number): Uint8Array {
  const frame = new Uint8Array(8 + bytes);
  frame.set([0x5a, 0x2a, 0x4d, 0x18]);
  new DataView(frame.buffer).setUint32(4, bytes, true);
  return frame;
}

function header(type: number, size: number): Uint8Array {
  const word = (size << 3) | (type << 1);
  return Uint8Array.of(word & 255, (word >> 8) & 255, word >> 16);
}
