// What the thread that plans and the one that reads rings tell each other, and rows made small for the way between them.

import type { HeldLevels } from '../../plan/steps/step-watch.ts';
import { EventKind } from '../../trace/trace.ts';
import { EVENT_BYTES, EventField, EventOffset } from '../../trace/weir/format.ts';
import { u64 } from '../rings/ring-layout.ts';

/** A process on one of its GPUs, as `key` of all messages about it. */
export type PlanRequest =
  | {
      readonly kind: 'begin';
      readonly key: number;
      readonly device: number;
      /** Files of its plans are `prefix` and the number of the plan. */
      readonly prefix: string;
      /** Whether it marks the ends of its steps. */
      readonly marksSteps: boolean;
    }
  /** Watch anew; `live` is what is live in bytes, `least` how many operations the last step had that was planned. */
  | { readonly kind: 'restart'; readonly key: number; readonly live: number; readonly least: number }
  | {
      readonly kind: 'rows';
      readonly key: number;
      readonly rows: Float64Array;
      readonly levels: HeldLevels;
      readonly streams: readonly bigint[];
    }
  | { readonly kind: 'end'; readonly key: number };

/** A plan as the summary tells of it. */
export interface PlanFacts {
  /** Allocations and frees per step; how many of them are requests of the plan. */
  readonly period: number;
  readonly requests: number;
  readonly turns: number;
  /** Steps seen until it was made. */
  readonly steps: number;
  readonly footprint: number;
  readonly lowerBound: number;
  /** Held then, and expected when it is followed. */
  readonly from: number;
  readonly expected: number;
  readonly detectMs: number;
  readonly planMs: number;
}

export type PlanAnswer =
  /** So many rows were looked at. */
  | { readonly kind: 'taken'; readonly key: number; readonly rows: number }
  /** The file of that number is there. */
  | { readonly kind: 'planned'; readonly key: number; readonly generation: number; readonly facts: PlanFacts }
  /** The step is one that the process has a plan for already. */
  | { readonly kind: 'known'; readonly key: number }
  | { readonly kind: 'watching' | 'declined'; readonly key: number; readonly reason: string };

/** Numbers per row: kind and stream, address, size; for a mark what `markOf` says in place of the address. */
export const PACKED = 3;
/** The mark that swapping sets when a step is over, among those that `markOf` gives numbers. */
export const STEP_MARK = 'weir step';
export const STEP_ENDED = 0;
/** And the one for when its steps are what they are going to be. */
export const SETTLED_MARK = 'weir swap settled';
const STREAM_UNIT = 256;

export interface PackedRow {
  readonly kind: number;
  readonly stream: number;
}

export function unpackHead(head: number): PackedRow {
  return { kind: head % STREAM_UNIT, stream: Math.floor(head / STREAM_UNIT) };
}

const WATCHED: ReadonlySet<number> = new Set([EventKind.Alloc, EventKind.FreeRequested, EventKind.FreeCompleted, EventKind.Mark]);

/** Which GPUs the rows are about. */
export function devicesOf(rows: Buffer): Set<number> {
  const found = new Set<number>();
  for (let row = 0; row + EVENT_BYTES <= rows.length; row += EVENT_BYTES) found.add(rows.readUInt16LE(row + EventOffset.device));
  return found;
}

/** Details of the marks among the rows. */
export function marksIn(rows: Buffer): number[] {
  const found: number[] = [];
  for (let row = 0; row + EVENT_BYTES <= rows.length; row += EVENT_BYTES) {
    const isMark = rows[row + EventOffset.kind] === EventKind.Mark && rows[row + EventOffset.fields]! & EventField.Detail;
    if (isMark) found.push(rows.readUInt32LE(row + EventOffset.detail));
  }
  return found;
}

/** What a planner needs of the rows of one GPU: those of its default pool, and marks for which `markOf` gives a number from 0 on. */
export function packRows(rows: Buffer, device: number, defaultPool: number, markOf: (detail: number) => number): Float64Array {
  const view = new DataView(rows.buffer, rows.byteOffset, rows.length);
  const packed = new Float64Array((rows.length / EVENT_BYTES) * PACKED);
  let at = 0;
  for (let row = 0; row + EVENT_BYTES <= rows.length; row += EVENT_BYTES) {
    const kind = rows[row + EventOffset.kind]!;
    if (!WATCHED.has(kind) || view.getUint16(row + EventOffset.device, true) !== device) continue;
    let address = 0;
    if (kind === EventKind.Mark) {
      address = rows[row + EventOffset.fields]! & EventField.Detail ? markOf(view.getUint32(row + EventOffset.detail, true)) : -1;
      if (address < 0) continue;
    } else {
      if (view.getInt32(row + EventOffset.pool, true) !== defaultPool) continue;
      address = u64(view, row + EventOffset.address);
    }
    packed[at] = kind + STREAM_UNIT * view.getInt32(row + EventOffset.stream, true);
    packed[at + 1] = address;
    packed[at + 2] = u64(view, row + EventOffset.size);
    at += PACKED;
  }
  return packed.slice(0, at);
}
