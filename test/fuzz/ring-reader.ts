// Reads a ring as the supervisor of a run does, while its process writes. The recording made from any ring must be readable.
import { existsSync, ftruncateSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { RING_HEADER_BYTES, RING_STRING_BYTES, RingOffset } from '../../src/abi/ring.ts';
import { InputError, InvariantError } from '../../src/base/errors.ts';
import { ProcessRecording } from '../../src/run/rings/process-recording.ts';
import { Ring, RingDamage } from '../../src/run/rings/ring.ts';
import { TraceFile } from '../../src/run/rings/trace-file.ts';
import { readWeir } from '../../src/trace/weir/reader.ts';
import { DRAIN, type Patch, patchesOf } from './formats/ring.ts';
import { joined } from './mutate.ts';

export { RingDamage };

/** Header, strings and a few hundred rows. */
export const RING_FILE_BYTES: number = Math.ceil(RING_HEADER_BYTES / 4096) * 4096 + RING_STRING_BYTES + (1 << 14);

/** Keeps the recording in memory. */
class MemoryFile extends TraceFile {
  private readonly records: Uint8Array[] = [];

  constructor() {
    super(undefined, false);
  }

  override write(record: Uint8Array): void {
    this.records.push(Uint8Array.from(record));
    this.bytes += record.length;
  }

  override get isOpen(): boolean {
    return true;
  }

  content(): Uint8Array {
    return joined(...this.records);
  }
}

const PAGE = 4096;

/** The file of a ring, written in pages: a system call per patch would take most of the time. */
class RingFile {
  readonly path: string;
  readonly remove: () => void;
  private readonly descriptor: number;
  private readonly image = new Uint8Array(Math.ceil(RING_FILE_BYTES / PAGE) * PAGE);
  private readonly changed = new Set<number>();
  private readonly used = new Set<number>();

  constructor() {
    // Real rings lie in shared memory too.
    const folder = mkdtempSync(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'weir-fuzz-ring-'));
    this.remove = () => rmSync(folder, { recursive: true, force: true });
    process.once('exit', this.remove);
    this.path = join(folder, '1.ring');
    this.descriptor = openSync(this.path, 'w+');
    ftruncateSync(this.descriptor, RING_FILE_BYTES);
  }

  put({ at, bytes }: Patch): void {
    if (at + bytes.length > RING_FILE_BYTES) return;
    this.image.set(bytes, at);
    for (let page = Math.floor(at / PAGE); page * PAGE < at + bytes.length; page++) this.changed.add(page);
  }

  /** Writes the pages that were changed since the last time, but not what the reader has written. */
  flush(): void {
    for (const page of this.changed) {
      const from = page === 0 ? FIRST_WRITTEN_BY_READER : 0;
      if (page === 0) writeSync(this.descriptor, this.image, 0, RingOffset.head, 0);
      writeSync(this.descriptor, this.image, page * PAGE + from, PAGE - from, page * PAGE + from);
      this.used.add(page);
    }
    this.changed.clear();
  }

  /** Zeros again. */
  clear(): void {
    this.image.fill(0);
    for (const page of this.used) writeSync(this.descriptor, this.image, 0, PAGE, page * PAGE);
    this.used.clear();
    this.changed.clear();
  }
}

/** Bytes from `head` on, up to here, are the reader's. */
const FIRST_WRITTEN_BY_READER = RingOffset.gauges;

let file: RingFile | undefined;

/** Removes the file. Threads of a test runner have no exit of their own. */
export function removeRing(): void {
  file?.remove();
  file = undefined;
}

export function readRing(input: Uint8Array): void {
  file ??= new RingFile();
  const ringFile = file;
  let recording: ProcessRecording | undefined;
  const look = () => {
    ringFile.flush();
    if (!recording) {
      const ring = Ring.open(ringFile.path);
      if (!ring) return;
      recording = new ProcessRecording(ring, new MemoryFile(), {
        meta: {},
        settings: new Map(),
        mostEvents: 1000,
        whatIfEvents: 100,
      });
    }
    recording.drain();
  };
  try {
    for (const patch of patchesOf(input)) {
      if (patch.at === DRAIN) look();
      else ringFile.put(patch);
    }
    look();
  } finally {
    recording?.finish();
    ringFile.clear();
  }
  if (!recording) return;
  readBack((recording.file as MemoryFile).content());
  if (recording.damage !== undefined) throw new RingDamage(recording.damage);
}

/** A recording without a single GPU is refused; any other must be whole. */
function readBack(content: Uint8Array): void {
  try {
    const damaged = readWeir(content).traces[0]?.warnings.find(({ code }) => /truncated|corrupt|unknown-events/.test(code));
    if (damaged) throw new InvariantError(`the recording of a ring is damaged: ${damaged.message}`);
  } catch (error) {
    if (error instanceof InputError && error.message.includes('holds no recording')) return;
    throw error instanceof InputError ? new InvariantError(`the recording of a ring cannot be read: ${error.message}`) : error;
  }
}
