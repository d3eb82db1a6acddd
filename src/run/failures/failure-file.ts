// A failure as a .weir file: everything live as the start state, then the last events, then what the process said about its memory.
import { RING_DEVICES } from '../../abi/ring.ts';
import { BLOCK_UNIT } from '../../abi/settings.ts';
import { roundUp } from '../../base/bytes.ts';
import { formatTimes } from '../../base/counts.ts';
import { reservedAfter } from '../../trace/reserved.ts';
import { segmentHolding } from '../../trace/start-state.ts';
import type { Symbols } from '../../trace/symbols.ts';
import {
  type Block,
  EventKind,
  type HostMemory,
  type OtherMemory,
  type PoolId,
  type RecordedLimits,
  type Segment,
  type SettingValue,
  type Warning,
} from '../../trace/trace.ts';
import { EVENT_BYTES, EVERY_DEVICE, EventField, EventOffset } from '../../trace/weir/format.ts';
import { setU64 } from '../../trace/weir/numbers.ts';
import { WeirWriter } from '../../trace/weir/writer.ts';
import { u64 } from '../rings/ring-layout.ts';
import type { HeldSegment } from './held-segments.ts';
import { type LiveBlocks, LiveState } from './live-table.ts';
import type { Failure, FailureState } from './process-memory.ts';

/** Largest request that PyTorch serves from small segments. */
const MOST_SMALL = 1 << 20;

/** What a file needs to know of the process. */
export interface FailedProcess {
  /** What rows refer to. */
  readonly symbols: Symbols;
  readonly meta: Readonly<Record<string, unknown>>;
  readonly settings: ReadonlyMap<string, SettingValue>;
  /** Empty for GPUs that were not used. Handles are as in `symbols.addresses`. */
  streamsOf(gpu: number): readonly number[];
  poolsOf(gpu: number): readonly PoolId[];
  limitsOf(gpu: number): RecordedLimits;
  /** `reserved`: what the allocator held when the request failed. */
  otherMemoryOf(gpu: number, reserved: number): OtherMemory | undefined;
  readonly hostMemory: HostMemory | undefined;
  /** Events that never reached us, or were invalid. */
  readonly lost: number;
}

export function failureFile(failure: Failure, state: FailureState, process: FailedProcess): Uint8Array {
  const chunks: Uint8Array[] = [];
  const writer = new WeirWriter((chunk) => chunks.push(chunk), { ...process.meta, failure: failure.number }, process.symbols);
  const gpus = Array.from({ length: RING_DEVICES }, (_, gpu) => gpu).filter((gpu) => process.streamsOf(gpu).length > 0);
  for (const gpu of gpus) {
    writer.device(gpu, process.limitsOf(gpu));
    writer.streams(gpu, process.streamsOf(gpu));
    writer.pools(gpu, process.poolsOf(gpu));
  }
  writer.settings(EVERY_DEVICE, process.settings);
  if (process.hostMemory) writer.hostMemory(EVERY_DEVICE, process.hostMemory);
  writer.warnings(EVERY_DEVICE, warningsOf(state, process));
  const start = startTime(failure, state);
  const before: Buffer[] = [state.marks];
  for (const gpu of gpus) {
    const live = state.live.get(gpu);
    const { segments, kept } = segmentsOf(live);
    const other = process.otherMemoryOf(gpu, reservedAt(live, segments, gpu, state.window));
    if (other) writer.otherMemory(gpu, other);
    writer.state(gpu, 'whole start', segments);
    if (live) before.push(rowsBefore(live, kept, gpu, start));
  }
  writer.rows(Buffer.concat([...before, state.window, ...failure.late]));
  writer.end();
  return Buffer.concat(chunks);
}

/** What the allocator held from the driver when the request failed, as a reader of the file finds it. */
function reservedAt(live: LiveBlocks | undefined, segments: readonly Segment[], gpu: number, window: Buffer): number {
  let reserved = live?.reserved ?? segments.reduce((sum, { size }) => sum + size, 0);
  const view = new DataView(window.buffer, window.byteOffset, window.length);
  for (let at = 0; at < window.length; at += EVENT_BYTES)
    if (view.getUint16(at + EventOffset.device, true) === gpu)
      reserved = reservedAfter(reserved, view.getUint8(at + EventOffset.kind), u64(view, at + EventOffset.size));
  return reserved;
}

function warningsOf({ live }: FailureState, { lost }: FailedProcess): Warning[] {
  const omitted = [...live.values()].reduce((sum, blocks) => sum + blocks.omitted, 0);
  const warnings: Warning[] = [];
  if (lost > 0)
    warnings.push({
      code: 'dropped-events',
      message: `${formatTimes(lost, 'event is', 'events are')} missing, because events came faster than they could be read: what was live at the failure is incomplete, and may hold memory that was freed`,
    });
  if (omitted > 0)
    warnings.push({
      code: 'omitted-blocks',
      message: `${formatTimes(omitted, 'block was', 'blocks were')} left out, because more were live than Weir follows: what was live at the failure is incomplete`,
    });
  return warnings;
}

/** Blocks in their segments. A block outside of all segments, as on Weir's engine, is a segment of its own. */
function segmentsOf(live: LiveBlocks | undefined): { segments: Segment[]; kept: readonly number[] } {
  if (!live) return { segments: [], kept: [] };
  const kept = standing(live);
  const held: readonly HeldSegment[] = live.segments;
  const inside: Block[][] = held.map(() => []);
  const withBlocks = held.map((segment): Segment => ({ ...segment, blocks: [] }));
  const segments: Segment[] = [];
  for (const row of kept) {
    const address = live.address[row]!;
    const requested = live.requested[row]!;
    const block: Block = { address, size: sizeOf(requested), requested, state: 'live', stack: live.stack[row]! };
    const at = segmentHolding(withBlocks, address);
    if (at >= 0) inside[at]!.push(block);
    else
      segments.push({
        address,
        size: block.size,
        stream: live.stream[row]!,
        pool: Math.max(0, live.pool[row]!),
        small: requested <= MOST_SMALL,
        expandable: false,
        stack: block.stack,
        blocks: [block],
      });
  }
  segments.push(...held.map((segment, index) => ({ ...segment, blocks: inside[index]! })));
  return { segments: segments.sort((a, b) => a.address - b.address), kept };
}

/** Rows in address order. If events were lost, a row may stand for memory that was freed: where two overlap, the newer one is right. */
function standing(live: LiveBlocks): number[] {
  const rows: number[] = [];
  for (let row = 0; row < live.count; row++) if (live.state[row] !== LiveState.None) rows.push(row);
  rows.sort((a, b) => live.address[a]! - live.address[b]!);
  const kept: number[] = [];
  for (const row of rows) {
    let isKept = true;
    while (isKept && kept.length > 0) {
      const last = kept.at(-1)!;
      if (live.address[last]! + sizeOf(live.requested[last]!) <= live.address[row]!) break;
      if (live.order[last]! > live.order[row]!) isKept = false;
      else kept.pop();
    }
    if (isKept) kept.push(row);
  }
  return kept;
}

function sizeOf(requested: number): number {
  return roundUp(Math.max(1, requested), BLOCK_UNIT);
}

/** What a start state cannot say: memory reserved, blocks whose free is not complete, categories. */
function rowsBefore(live: LiveBlocks, kept: readonly number[], gpu: number, timeUs: number): Buffer {
  const rows = Buffer.alloc((2 * kept.length + 1) * EVENT_BYTES);
  const view = new DataView(rows.buffer, rows.byteOffset, rows.length);
  let at = 0;
  const put = (kind: number, address: number, size: number, stream: number, pool: number, detail?: number) => {
    view.setFloat64(at + EventOffset.time_us, timeUs, true);
    setU64(view, at + EventOffset.address, address);
    setU64(view, at + EventOffset.size, size);
    view.setUint8(at + EventOffset.kind, kind);
    view.setUint8(at + EventOffset.fields, detail === undefined ? 0 : EventField.Detail);
    view.setUint16(at + EventOffset.device, gpu, true);
    view.setInt32(at + EventOffset.stream, stream, true);
    view.setInt32(at + EventOffset.pool, pool, true);
    view.setInt32(at + EventOffset.stack, -1, true);
    view.setInt32(at + EventOffset.detail, detail ?? 0, true);
    at += EVENT_BYTES;
  };
  if (live.reserved !== undefined) put(EventKind.Reserved, 0, live.reserved, 0, -1);
  for (const row of kept) {
    const [address, stream, pool] = [live.address[row]!, live.stream[row]!, live.pool[row]!];
    if (live.category[row] !== 0) put(EventKind.Category, address, 0, stream, pool, live.category[row]!);
    if (live.state[row] === LiveState.Pending) put(EventKind.FreeRequested, address, live.requested[row]!, stream, pool);
  }
  return rows.subarray(0, at);
}

/** Rows are in order of time, and what was before the window stands before it. */
function startTime({ timeUs }: Failure, { window }: FailureState): number {
  let first = timeUs;
  for (let at = 0; at < window.length; at += EVENT_BYTES) first = Math.min(first, window.readDoubleLE(at + EventOffset.time_us));
  return first;
}
