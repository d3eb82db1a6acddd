// Reads recordings as the command does: unpacked and read in pieces. Pieces are small here, and their memory is used again.
import { InputError, InvariantError } from '../../src/base/errors.ts';
import { gunzip } from '../../src/cli/input-pieces.ts';
import { unpack } from '../../src/io/unpack.ts';
import { detectFormat, RecordingReader, readRecording } from '../../src/trace/detect.ts';
import { SnapshotReader } from '../../src/trace/snapshot/read.ts';
import type { Recording } from '../../src/trace/trace.ts';
import { WeirReader } from '../../src/trace/weir/reader.ts';
import { Random } from './random.ts';

/** Files are read in larger pieces than these inputs are, so they are cut here. */
function* piecesOf(bytes: Uint8Array, sizes: readonly number[]): Generator<Uint8Array> {
  const random = new Random(bytes.length ^ ((bytes[bytes.length >> 1] ?? 0) << 16));
  const most = random.pick(sizes);
  const buffer = new Uint8Array(most);
  for (let from = 0; from < bytes.length; ) {
    const piece = bytes.subarray(from, from + 1 + random.below(most));
    buffer.set(piece);
    yield buffer.subarray(0, piece.length);
    // A reader that has kept the piece sees this.
    buffer.fill(0xa5);
    from += piece.length;
  }
}

/** What the engine says of a mistake in the unpacker, which reports it as a damaged file. */
const MISTAKE = /Cannot |is not a |undefined|Invalid (array|typed|DataView)|out of bounds|call stack|not iterable/;

export async function readPacked(bytes: Uint8Array): Promise<void> {
  try {
    await readUnpacked(bytes);
  } catch (error) {
    if (error instanceof InputError && /cannot be unpacked/.test(error.message) && MISTAKE.test(error.message))
      throw new InvariantError(error.message);
    throw error;
  }
}

async function readUnpacked(bytes: Uint8Array): Promise<void> {
  const content = await unpack(piecesOf(bytes, [100, 1000, 70_000]), gunzip);
  const reader = new RecordingReader(bytes.length * 10);
  for await (const piece of content.pieces) {
    reader.push(piece);
    if (reader.isDone) break;
  }
  reader.finish();
}

/** A recording in pieces must be read, or refused, exactly as it is in one. */
export function readInPieces(bytes: Uint8Array): void {
  const whole = outcomeOf(() => readRecording(bytes));
  const inPieces = outcomeOf(() => {
    const format = detectFormat(bytes);
    const reader = format === 'weir' ? new WeirReader(0) : new SnapshotReader(format, 0);
    for (const piece of piecesOf(bytes, [1, 7, 64, 1000])) {
      reader.push(piece);
      if (reader instanceof WeirReader && reader.isDone) break;
    }
    return reader.finish();
  });
  if (whole.text !== inPieces.text)
    throw new InvariantError(
      `in pieces it is another recording:\n whole: ${whole.text.slice(0, 500)}\n pieces: ${inPieces.text.slice(0, 500)}`,
    );
  if (whole.refusal) throw whole.refusal;
}

function outcomeOf(read: () => Recording): { readonly text: string; readonly refusal?: InputError } {
  try {
    return { text: JSON.stringify(read().traces.map(digestOf)) };
  } catch (error) {
    if (!(error instanceof InputError)) throw error;
    return { text: error.message, refusal: error };
  }
}

function digestOf({
  device,
  events,
  warnings,
  settings,
  startSegments,
  endSegments,
  symbols,
  annotations,
}: Recording['traces'][number]): unknown {
  const columns = Object.entries(events).map(([name, column]) => [
    name,
    ArrayBuffer.isView(column) ? sumOf(column as Float64Array, events.count) : column,
  ]);
  const segments = [...startSegments, ...(endSegments ?? [])].map(({ address, size, blocks }) => [address, size, blocks.length]);
  return [device, columns, warnings, [...settings], segments, symbols.strings.length, annotations];
}

function sumOf(column: ArrayLike<number>, count: number): number {
  let sum = 0;
  for (let at = 0; at < count; at++) sum = (sum * 31 + (column[at] ?? 0)) % 1e9;
  return sum;
}
