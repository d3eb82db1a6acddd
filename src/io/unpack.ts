// Unpacks what the command or the page was given: gzip, zstd or neither, told by the first bytes and never by the name.
// Content streams through. A file that unpacks to far more than any recording does is refused on the way.
import { formatBytes } from '../base/bytes.ts';
import { InputError } from '../base/errors.ts';
import { gathered, PieceReader, type Pieces } from './pieces.ts';
import { isZstd, unzstd } from './zstd.ts';

const GZIP_MAGIC = [0x1f, 0x8b];
/** Recordings pack to a fifteenth, at best to a thirtieth. */
export const MOST_RATIO = 200;
const FREE_BYTES = 2 ** 26;

/** Gunzip is the platform's own. It must read all members of a gzip file: `weir convert` writes several. */
export type Gunzip = (packed: AsyncIterable<Uint8Array>) => AsyncIterable<Uint8Array>;

export interface Unpacked {
  readonly isPacked: boolean;
  /** Throws InputError if the file is damaged or unpacks to too much. */
  readonly pieces: AsyncIterable<Uint8Array>;
}

/** The unpacked content of `source`, or the content itself if it is not packed. */
export async function unpack(source: Pieces, gunzip: Gunzip): Promise<Unpacked> {
  const reader = new PieceReader(source);
  const hasStart = await reader.need(4);
  if (hasStart && GZIP_MAGIC.every((byte, at) => reader.peek(at) === byte))
    return { isPacked: true, pieces: gathered(guarded(gunzip(reader.rest()), reader)) };
  if (hasStart && isZstd(reader)) return { isPacked: true, pieces: gathered(guarded(unzstd(reader), reader)) };
  return { isPacked: false, pieces: gathered(reader.rest()) };
}

async function* guarded(pieces: AsyncIterable<Uint8Array>, reader: PieceReader): AsyncGenerator<Uint8Array> {
  let unpacked = 0;
  try {
    for await (const piece of pieces) {
      unpacked += piece.length;
      if (unpacked > FREE_BYTES && unpacked > reader.total * MOST_RATIO) throw tooDense(unpacked, reader.total);
      yield piece;
    }
  } catch (error) {
    if (error instanceof InputError) throw error;
    const reason = error instanceof Error ? error.message : String(error);
    throw new InputError(`the file cannot be unpacked (${reason}): it is truncated or damaged; copy it again`);
  } finally {
    await reader.close();
  }
}

/** The error for content that no recording packs to. */
export function tooDense(unpacked: number, packed: number): InputError {
  return new InputError(
    `its first ${formatBytes(packed)} unpack to ${formatBytes(unpacked)}, which no recording does: the file is damaged or a trap`,
  );
}
