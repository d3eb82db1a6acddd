// Reads a ring as the supervisor of a run does, while its process writes. The recording made from any ring must be readable.
import { closeSync, ftruncateSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { RING_HEADER_BYTES, RING_STRING_BYTES } from '../../src/abi/ring.ts';
import { InputError, InvariantError } from '../../src/base/errors.ts';
import { ProcessRecording } from '../../src/run/rings/process-recording.ts';
import { Ring, RingDamage } from '../../src/run/rings/ring.ts';
import { TraceFile } from '../../src/run/rings/trace-file.ts';
import { readWeir } from '../../src/trace/weir/reader.ts';
import { DRAIN, patchesOf } from './formats/ring.ts';
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

let file: { readonly path: string; readonly descriptor: number } | undefined;

function ringFile(): { readonly path: string; readonly descriptor: number } {
  if (file) return file;
  const folder = mkdtempSync(join(tmpdir(), 'weir-fuzz-ring-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, '1.ring');
  file = { path, descriptor: openSync(path, 'w+') };
  return file;
}

export function readRing(input: Uint8Array): void {
  const { path, descriptor } = ringFile();
  // Cutting the file to nothing first makes it all zeros again.
  ftruncateSync(descriptor, 0);
  ftruncateSync(descriptor, RING_FILE_BYTES);
  let recording: ProcessRecording | undefined;
  const look = () => {
    if (!recording) {
      const ring = Ring.open(path);
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
  for (const { at, bytes } of patchesOf(input)) {
    if (at === DRAIN) look();
    else if (at + bytes.length <= RING_FILE_BYTES) writeSync(descriptor, bytes, 0, bytes.length, at);
  }
  look();
  if (!recording) return;
  recording.finish();
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

/** Closes the ring of this process; tests call it. */
export function closeRing(): void {
  if (file) closeSync(file.descriptor);
  file = undefined;
}
