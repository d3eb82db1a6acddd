// Reads a recording or a text from a file or from standard input, unpacks it, and shows progress if that takes a while.
import { constants } from 'node:buffer';
import { totalmem } from 'node:os';
import { formatBytes } from '../base/bytes.ts';
import type { ColumnMemory } from '../base/columns.ts';
import { InputError } from '../base/errors.ts';
import { type BufferLimit, GrowingBuffer } from '../io/growing-buffer.ts';
import { unpack } from '../io/unpack.ts';
import { NO_DEMAND } from '../trace/assemble.ts';
import { RecordingReader } from '../trace/detect.ts';
import type { Recording, Trace } from '../trace/trace.ts';
import { gunzip, nameOf, openPieces } from './input-pieces.ts';
import type { Progress } from './progress.ts';

/** A recording takes about as much memory as its file, unpacked. Half of this machine's memory is left for the work itself. */
const MOST_BYTES = Math.min(constants.MAX_LENGTH, Math.floor(totalmem() * 0.5));
/** Plans and lists of buffers are held as text. They have a few megabytes. */
const MOST_TEXT = 2 ** 26;
/** A line, list or object of a text takes about 100 bytes of memory, and a value about 10, however short they are. */
const MOST_PARTS = 2 ** 20;
const MOST_VALUES = 2 ** 23;
const FREE_SPACE = 2 ** 22;
const SPACE = 0x20;
const LINE_END = 0x0a;
const COMMA = 0x2c;
const OPEN_LIST = 0x5b;
const OPEN_OBJECT = 0x7b;
/** Packed recordings are about this much smaller. */
const USUAL_RATIO = 10;
/** The beginning that tells a text from a recording. */
const START_BYTES = 4096;

/** Reads and parses `path` (`-` is standard input); errors name the file. `memory` takes the columns of the traces. */
export async function loadRecording(path: string, progress: Progress, memory?: ColumnMemory): Promise<Recording> {
  const input = await readInput(path, progress, () => false, memory);
  return input as Recording;
}

/** The content of a text file, unpacked if it is packed. `check` throws if its beginning shows that it is something else. */
export async function readBytes(path: string, progress: Progress, check: (start: Uint8Array) => void): Promise<Uint8Array> {
  const input = await readInput(path, progress, (start) => {
    check(start);
    return true;
  });
  return input as Uint8Array;
}

/** Reads a text whole if `isText` says so of its beginning, and anything else as a recording. Errors name the file. */
export async function readInput(
  path: string,
  progress: Progress,
  isText: (start: Uint8Array) => boolean,
  memory?: ColumnMemory,
): Promise<Uint8Array | Recording> {
  const { size = 0, pieces } = openPieces(path, progress);
  try {
    const content = await unpack(pieces, gunzip);
    const text = new TextCollector();
    const recording = new RecordingReader(content.isPacked ? size * USUAL_RATIO : size, memory);
    let total = 0;
    let into: TextCollector | RecordingReader | undefined;
    /** Whether an error is about the unpacked content, not about the packed file. */
    let isUnpacked = false;
    try {
      for await (const piece of content.pieces) {
        isUnpacked = content.isPacked;
        total += piece.length;
        if (total > MOST_BYTES) throw tooLarge();
        if (into) into.push(piece);
        else {
          text.push(piece);
          if (total >= START_BYTES) into = chosen();
        }
        if (into === recording && recording.isDone) break;
        isUnpacked = false;
      }
      isUnpacked = content.isPacked;
      into ??= chosen();
      return into === text ? text.bytes() : recording.finish();
    } catch (error) {
      throw isUnpacked && !recording.format && error instanceof InputError ? new InputError(`unpacked, ${error.message}`) : error;
    }

    function chosen(): TextCollector | RecordingReader {
      if (isText(text.bytes())) return text;
      recording.push(text.bytes());
      return recording;
    }
  } catch (error) {
    throw named(path, error);
  }
}

/** A text in one buffer. Texts of white space or of very many parts are refused: their readers take many times their size. */
class TextCollector {
  private readonly buffer = new GrowingBuffer(TEXT_LIMIT);
  private spaces = 0;
  private parts = 0;
  private values = 0;
  private total = 0;

  push(piece: Uint8Array): void {
    for (const byte of piece) {
      if (byte <= SPACE) this.spaces++;
      if (byte === LINE_END || byte === OPEN_LIST || byte === OPEN_OBJECT) this.parts++;
      else if (byte === COMMA) this.values++;
    }
    this.total += piece.length;
    this.buffer.add(piece);
    if (this.spaces > FREE_SPACE && this.spaces > this.total / 2)
      throw new InputError('the file is mostly white space: it is damaged or something else');
    if (this.parts > MOST_PARTS || this.values > MOST_VALUES)
      throw new InputError(`the text has more than ${MOST_PARTS} lines and lists or ${MOST_VALUES} values: it is probably something else`);
  }

  bytes(): Uint8Array {
    return this.buffer.bytes();
  }
}

const TEXT_LIMIT: BufferLimit = {
  mostBytes: MOST_TEXT,
  tooLarge: () => new InputError(`the text is longer than ${formatBytes(MOST_TEXT)}, the most that is read: it is probably something else`),
};

/** Runs `act`, and puts the file's name in front of the InputError that it may throw. */
export function naming<Result>(path: string, act: () => Result): Result {
  try {
    return act();
  } catch (error) {
    throw named(path, error);
  }
}

function named(path: string, error: unknown): unknown {
  return error instanceof InputError ? new InputError(`${nameOf(path)}: ${error.message}`) : error;
}

/** The trace of one GPU, or of all if `gpu` is undefined. */
export function pickGpus(recording: Recording, gpu: number | undefined, path: string): readonly Trace[] {
  if (gpu === undefined) return recording.traces;
  const trace = recording.traces.find((candidate) => candidate.device === gpu);
  if (trace) return [trace];
  const known = recording.traces.map((candidate) => candidate.device).join(', ');
  throw new InputError(`${nameOf(path)} has no events of GPU ${gpu}; it has GPU ${known}`);
}

/** Refuses a recording in which no GPU has what the command needs: requests, or for `memory` at least segments. The error names `path`. */
export function requireDemand(traces: readonly Trace[], path: string | undefined, needs: 'requests' | 'memory'): void {
  const lacks = traces.map(({ warnings, endSegments = [], startSegments }) =>
    needs === 'memory' && endSegments.length + startSegments.length > 0 ? undefined : warnings.find(({ code }) => code === NO_DEMAND),
  );
  if (!lacks.every((warning) => warning !== undefined)) return;
  // What was ignored may be what is missing.
  const ignored = traces[0]!.warnings.find(({ code }) => code === 'unknown-actions' || code === 'unknown-events');
  throw new InputError(`${path === undefined ? '' : `${nameOf(path)}: `}${lacks[0]!.message}${ignored ? `; ${ignored.message}` : ''}`);
}

function tooLarge(): InputError {
  return new InputError(
    `the recording is larger than ${formatBytes(MOST_BYTES)}, the most that can be read on this machine; record with fewer max_entries`,
  );
}
