// A training job without PyTorch and without a GPU, whose memory grows with its batch: node fit-job.js --batch N [--length N] [WORD...].
// It writes a ring as a real process does, marks its steps, and ends after as many as it is told.
import { writeFileSync } from 'node:fs';
import { ChildVariable } from '../../src/abi/environment.ts';
import { CATEGORY_NAMES, PhaseMark } from '../../src/abi/events.ts';
import { EventKind } from '../../src/trace/trace.ts';
import { RingWriter } from '../run/ring-writer.ts';

const MIB = 1024 * 1024;
const words = process.argv.slice(2);
const numberAfter = (name: string, otherwise: number) => Number(words[words.indexOf(name) + 1] ?? otherwise);
const batch = words.includes('--batch') ? numberAfter('--batch', 0) : 0;
const length = words.includes('--length') ? numberAfter('--length', 1) : 1;
const endAfter = Number(process.env[ChildVariable.endAfter] ?? 'NaN');
const limit = Number(process.env[ChildVariable.limit] ?? Number.POSITIVE_INFINITY);

if (words.includes('fail')) fail(1, 'Traceback: no such dataset');
if (words.includes('fail-above') && batch > numberAfter('fail-above', 0)) fail(1, 'torch.OutOfMemoryError: CUDA out of memory');
if (words.includes('crash-above') && batch > numberAfter('crash-above', 0)) fail(3, 'ValueError: the batch is too large for the dataset');
if (words.includes('talk')) fail(1, `ValueError: ${'of a long tensor '.repeat(500)}`);
if (words.includes('stubborn')) for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => {});
if (words.includes('wait')) {
  writeFileSync(words[words.indexOf('wait') + 1]!, String(process.pid));
  setInterval(() => {}, 1000);
}

const device = words.includes('gpu') ? numberAfter('gpu', 0) : 0;
const ring = new RingWriter(process.env[ChildVariable.runDir] ?? '', {
  capacity: 1 << 14,
  allocator: process.env[ChildVariable.allocator] ?? '',
});
ring.gauges(device, { total: 1024 * MIB });
ring.stream(device, 0, 0);
ring.pool(device, 0, [0, 0]);
// A process that sees a GPU, but requests nothing of it.
if (words.includes('idle')) {
  ring.close();
  process.exit(0);
}
const mark = ring.string(PhaseMark.step);
const usable = ring.string(`weir usable ${1000 * MIB}`);
const STATE = 120 * MIB;
let [next, live, peak] = [0x7f00_0000_0000, 0, 0];
/** State leaves if memory runs short, as with --swap. */
let isAway = false;

function alloc(size: number): [number, number] {
  const block: [number, number] = [next, size];
  next += Math.ceil(size / (2 * MIB)) * 2 * MIB;
  live += size;
  peak = Math.max(peak, live);
  if (live - (isAway ? STATE : 0) > limit) fail(1, 'torch.OutOfMemoryError: CUDA out of memory');
  ring.put({ kind: EventKind.Alloc, address: block[0], size, device });
  return block;
}

function free([address, size]: readonly [number, number]): void {
  live -= size;
  ring.put({ kind: EventKind.FreeRequested, address, size, device });
  ring.put({ kind: EventKind.FreeCompleted, address, size, device });
}

for (let layer = 0; layer < 4; layer++) alloc(10 * MIB);
const optimizer = ring.string(PhaseMark.optimizer);
const hasState = words.includes('state');
for (let step = 1; ; step++) {
  const saved: [number, number][] = [];
  for (let layer = 0; layer < 4; layer++) {
    free(alloc(Math.max(512, layer * 2 * MIB * batch)));
    saved.push(alloc(3 * MIB * (words.includes('doubling') ? 2 ** Math.ceil(Math.log2(batch)) : batch) * length));
    // Large batches take another way, as kernels do.
    if (words.includes('kernels') && batch > 8) saved.push(alloc(MIB * batch));
  }
  for (const block of saved.reverse()) free(block);
  if (hasState) {
    ring.put({ kind: EventKind.Mark, detail: optimizer, device });
    isAway = false;
    if (step === 1) {
      const [address] = alloc(STATE);
      ring.put({ kind: EventKind.Category, address, detail: CATEGORY_NAMES.indexOf('optimizerState'), device });
    }
    isAway = process.env[ChildVariable.swap] !== undefined;
  }
  if (!words.includes('no-steps')) {
    if (step === 1) ring.put({ kind: EventKind.Mark, detail: usable, device });
    ring.put({ kind: EventKind.Mark, detail: mark, device });
  }
  ring.gauges(device, { total: 1024 * MIB, peak_live: peak, peak_reserved: peak, allocations: 8 * step });
  if (step === endAfter || step === 6 || words.includes('one-step')) break;
}
ring.close();
if (!words.includes('wait')) process.exit(0);

function fail(code: number, sentence: string): never {
  process.stderr.write(`${sentence}\n`);
  process.exit(code);
}
