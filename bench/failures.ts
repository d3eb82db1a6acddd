// What watching for out-of-memory errors costs the supervisor: time for each event, time and memory at a failure.
// node build/bench/failures.js [EVENTS] [LIVE BLOCKS]
import { failureFile } from '../src/run/failures/failure-file.ts';
import { type Failure, ProcessMemory } from '../src/run/failures/process-memory.ts';
import { EventKind } from '../src/trace/trace.ts';
import { EVENT_BYTES, EventOffset } from '../src/trace/weir/format.ts';
import { TestProcess } from '../test/run/failure-rows.ts';

const [events = 4_000_000, live = 50_000] = process.argv.slice(2).map(Number);
const ROWS_AT_ONCE = 4096;
const BASE = 0x7f00_0000_0000;

/** Blocks that stay, then requests that are freed in another order than they came, as in training steps. */
function rowsOf(count: number, blocks: number): Buffer {
  const rows = Buffer.alloc((count + 1) * EVENT_BYTES);
  const put = (row: number, kind: number, slot: number) => {
    const at = row * EVENT_BYTES;
    rows.writeDoubleLE(1.7e15 + row, at + EventOffset.time_us);
    rows.writeBigUInt64LE(BigInt(BASE + slot * 2 ** 21), at + EventOffset.address);
    rows.writeBigUInt64LE(1_000_000n, at + EventOffset.size);
    rows.writeUInt8(kind, at + EventOffset.kind);
    rows.writeInt32LE(slot % 2, at + EventOffset.stack);
  };
  let row = 0;
  for (; row < Math.min(count, blocks); row++) put(row, EventKind.Alloc, row);
  const step = 1000;
  for (let first = row; row < count; first = row) {
    const most = Math.min(count, first + 3 * step);
    for (; row < Math.min(most, first + step); row++) put(row, EventKind.Alloc, blocks + row - first);
    for (; row < most; row++) {
      const index = row - first - step;
      const slot = blocks + (((index >> 1) * 7919) % step);
      put(row, index % 2 === 0 ? EventKind.FreeRequested : EventKind.FreeCompleted, slot);
    }
  }
  put(count, EventKind.Oom, 0);
  return rows;
}

const job = new TestProcess();
for (const line of [1, 2]) job.stack('f', line);
const rows = rowsOf(events, live);
const memory = new ProcessMemory(
  () => false,
  () => false,
);
let failure: Failure | undefined;
const started = performance.now();
for (let at = 0; at < events * EVENT_BYTES; at += ROWS_AT_ONCE * EVENT_BYTES)
  memory.take(rows.subarray(at, Math.min(at + ROWS_AT_ONCE * EVENT_BYTES, events * EVENT_BYTES)), () => {});
const each = ((performance.now() - started) * 1e6) / events;
const failed = performance.now();
memory.take(rows.subarray(events * EVENT_BYTES), (found) => {
  failure = found;
  memory.capture(found);
});
const copied = performance.now();
const bytes = failureFile(failure!, failure!.state!, job);
const written = performance.now();
console.log(
  JSON.stringify({
    events,
    live,
    nsPerEvent: Number(each.toFixed(1)),
    copyMs: Number((copied - failed).toFixed(1)),
    fileMs: Number((written - copied).toFixed(1)),
    fileBytes: bytes.length,
    residentBytes: process.memoryUsage().rss - rows.length,
  }),
);
