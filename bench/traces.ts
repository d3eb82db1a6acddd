// The recorded traces that benchmarks run on. They lie beside the repository, not in it.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { readRecording } from '../src/trace/detect.ts';
import { liveSize } from '../src/trace/summary.ts';
import type { Trace } from '../src/trace/trace.ts';

export const SHARED = '../shared';

/** Exits with a message if the traces are not there. */
export function requireShared(folder: string): string {
  const path = `${SHARED}/${folder}`;
  if (!existsSync(path)) {
    console.error(`This benchmark needs the recorded traces in ${path}, beside the repository; they are not there.`);
    process.exit(1);
  }
  return path;
}

export interface NamedTrace {
  readonly name: string;
  readonly trace: Trace;
}

/** The training runs recorded under PyTorch's default allocator. */
export function trainingTraces(): NamedTrace[] {
  const folder = requireShared('traces/train');
  return readdirSync(folder)
    .filter((file) => file.includes('.native'))
    .sort()
    .map((file) => ({ name: file.split('.')[0]!, trace: readRecording(plainBytes(`${folder}/${file}`)).traces[0]! }));
}

export function plainBytes(path: string): Buffer {
  const bytes = readFileSync(path);
  return bytes[0] === 0x1f && bytes[1] === 0x8b ? gunzipSync(bytes) : bytes;
}

/** Requests and frees of slots. An operation of 0 bytes is a free. */
export interface Operations {
  readonly name: string;
  readonly slot: Uint32Array;
  readonly bytes: Float64Array;
  readonly slots: number;
  readonly peakLive: number;
}

/** SmartPool's logs: lines `Malloc <address> <bytes> <time>` and `Free <address> <time>`. Addresses are reused. */
export function smartPoolTraces(): Operations[] {
  const folder = requireShared('bench/smartpool');
  return readdirSync(folder)
    .filter((file) => file.startsWith('memInfo_'))
    .sort()
    .map((file) => parseSmartPool(file.split('_')[1]!, plainBytes(`${folder}/${file}`).toString()));
}

function parseSmartPool(name: string, text: string): Operations {
  const slot: number[] = [];
  const bytes: number[] = [];
  const open = new Map<string, { slot: number; bytes: number }>();
  let slots = 0;
  let live = 0;
  let peakLive = 0;
  for (const line of text.split('\n')) {
    const [kind, address, size] = line.trim().split(/\s+/);
    if (kind === 'Malloc') {
      const request = { slot: slots++, bytes: Number(size) };
      open.set(address!, request);
      slot.push(request.slot);
      bytes.push(request.bytes);
      live += liveSize(request.bytes);
      peakLive = Math.max(peakLive, live);
    } else if (kind === 'Free') {
      const request = open.get(address!);
      if (!request) continue;
      open.delete(address!);
      slot.push(request.slot);
      bytes.push(0);
      live -= liveSize(request.bytes);
    }
  }
  return { name: `smartpool-${name}`, slot: Uint32Array.from(slot), bytes: Float64Array.from(bytes), slots, peakLive };
}
