// A process that has failed: four blocks of 50 MiB, 320 MiB reserved, and a request for 250 MiB that found no memory.
import { MIB } from '../../src/base/bytes.ts';
import { type Failure, ProcessMemory } from '../../src/run/failures/process-memory.ts';
import { EventKind } from '../../src/trace/trace.ts';
import { rowsOf, TestProcess, type TestRow } from '../run/failure-rows.ts';

const BASE = 0x7f00_0000_0000;

/** On PyTorch's allocator each block lies in a segment of 80 MiB, with a hole behind it. Weir's engine tells only what is reserved. */
export function failedProcess(allocator: 'weir' | 'pytorch'): { process: TestProcess; failure: Failure } {
  const process = new TestProcess(allocator);
  process.deviceBytes = 400 * MIB;
  const [hidden, loss] = [process.stack('forward', 20), process.stack('loss', 30)];
  const addresses = [0, 1, 2, 3].map((index) => BASE + index * 128 * MIB);
  const segments: TestRow[] = addresses.flatMap((address) => [
    { kind: EventKind.SegmentAlloc, address, size: 80 * MIB },
    { kind: EventKind.Alloc, address, size: 80 * MIB, stack: hidden },
  ]);
  const frees: TestRow[] = addresses.flatMap((address) => [
    { kind: EventKind.FreeRequested, address, size: 80 * MIB },
    { kind: EventKind.FreeCompleted, address, size: 80 * MIB },
  ]);
  const rows: TestRow[] = [
    ...(allocator === 'pytorch' ? [...segments, ...frees] : [{ kind: EventKind.Reserved, size: 320 * MIB }]),
    ...addresses.map((address) => ({ kind: EventKind.Alloc, address, size: 50 * MIB, stack: hidden })),
    { kind: EventKind.Oom, address: 20 * MIB, size: 250 * MIB, stack: loss },
  ];
  const memory = new ProcessMemory(
    () => false,
    () => false,
    4,
  );
  const found: Failure[] = [];
  memory.take(rowsOf(rows), (failure) => {
    memory.capture(failure);
    found.push(failure);
  });
  memory.close();
  return { process, failure: found[0]! };
}
