// Reads packed recordings as the command does: unpacked with a limit, examined early, then read.
import { createGunzip } from 'node:zlib';
import { InputError } from '../../src/base/errors.ts';
import { unpack } from '../../src/io/unpack.ts';
import { detectFormat, readRecording } from '../../src/trace/detect.ts';

/** Inputs are small. What unpacks to more than this is a bomb, and must be refused. */
const MOST_BYTES = 2 ** 26;

export async function readPacked(bytes: Uint8Array): Promise<void> {
  const plain = await unpack(bytes, {
    mostBytes: MOST_BYTES,
    tooLarge: () => new InputError('the unpacked recording is too large'),
    gunzip: gunzipChunks,
    examine: detectFormat,
  });
  readRecording(plain);
}

async function* gunzipChunks(raw: Uint8Array): AsyncGenerator<Uint8Array> {
  const gunzip = createGunzip({ chunkSize: 1024 * 1024 });
  gunzip.end(raw);
  yield* gunzip;
}
