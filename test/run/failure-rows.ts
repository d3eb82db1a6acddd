// Rows with stacks and a process that has failed, for tests of files about out-of-memory errors.
import type { FailedProcess } from '../../src/run/failures/failure-file.ts';
import { Symbols } from '../../src/trace/symbols.ts';
import { EVENT_BYTES, EventOffset } from '../../src/trace/weir/format.ts';

export interface TestRow {
  readonly kind: number;
  readonly address?: number;
  readonly size?: number;
  readonly gpu?: number;
  readonly stream?: number;
  readonly pool?: number;
  readonly stack?: number;
  readonly detail?: number;
  readonly time?: number;
}

let clock = 1.7e15;

export function rowsOf(rows: readonly TestRow[]): Buffer {
  return Buffer.concat(
    rows.map((row) => {
      const bytes = Buffer.alloc(EVENT_BYTES);
      bytes.writeDoubleLE(row.time ?? ++clock, EventOffset.time_us);
      bytes.writeBigUInt64LE(BigInt(row.address ?? 0), EventOffset.address);
      bytes.writeBigUInt64LE(BigInt(row.size ?? 0), EventOffset.size);
      bytes.writeUInt8(row.kind, EventOffset.kind);
      bytes.writeUInt8(row.detail === undefined ? 2 : 3, EventOffset.fields);
      bytes.writeUInt16LE(row.gpu ?? 0, EventOffset.device);
      bytes.writeInt32LE(row.stream ?? 0, EventOffset.stream);
      bytes.writeInt32LE(row.pool ?? 0, EventOffset.pool);
      bytes.writeInt32LE(row.stack ?? -1, EventOffset.stack);
      bytes.writeInt32LE(row.detail ?? 0, EventOffset.detail);
      return bytes;
    }),
  );
}

/** A process with two GPUs, two streams each. Frames are `train.py:LINE NAME`, called from `main`. */
export class TestProcess implements FailedProcess {
  readonly symbols: Symbols = new Symbols();
  readonly meta = { tool: 'test' };
  readonly settings: FailedProcess['settings'];
  readonly hostMemory = undefined;
  lost = 0;
  deviceBytes = 2 ** 30;
  other: ReturnType<FailedProcess['otherMemoryOf']>;

  constructor(allocator: 'weir' | 'pytorch' = 'weir') {
    this.settings = new Map([
      ['allocator', allocator],
      ['torch_version', '2.11.0'],
    ]);
  }

  stack(name: string, line: number): number {
    const { symbols } = this;
    const file = symbols.internString('/home/me/job/train.py');
    const main = symbols.stacks.push(-1, symbols.frames.intern(symbols.internString('main'), file, 3));
    return symbols.stacks.push(main, symbols.frames.intern(symbols.internString(name), file, line));
  }

  streamsOf(gpu: number): number[] {
    return gpu < 2 ? [0, 0x5500] : [];
  }

  poolsOf(gpu: number): [number, number][] {
    return gpu < 2 ? [[0, 0]] : [];
  }

  limitsOf(): { deviceBytes: number } {
    return { deviceBytes: this.deviceBytes };
  }

  otherMemoryOf(): ReturnType<FailedProcess['otherMemoryOf']> {
    return this.other;
  }
}
