// Messages between the thread that plans and the one that reads rings, and the short form of rows in them.
// Control travels in gauges, never in the text of marks.

import type { HeldLevels } from '../../plan/steps/step-watch.ts';
import { EventKind } from '../../trace/trace.ts';
import { EVENT_BYTES, EventField, EventOffset } from '../../trace/weir/format.ts';
import { u64 } from '../rings/ring-layout.ts';

/** `key` stands for one process on one of its GPUs. */
export type PlanRequest =
  | {
      readonly kind: 'begin';
      readonly key: number;
      readonly device: number;
      /** Plan files are named by this prefix and the number of the plan. */
      readonly prefix: string;
      /** Whether the process counts its steps. */
      readonly countsSteps: boolean;
    }
  /** Watch from here on. `live`: bytes live now. `least`: operations of the last step that was planned. */
  | { readonly kind: 'restart'; readonly key: number; readonly live: number; readonly least: number }
  | {
      readonly kind: 'rows';
      readonly key: number;
      readonly rows: Float64Array;
      readonly levels: HeldLevels;
      /** Steps that have ended by the last of the rows, if that is known. */
      readonly steps: number | undefined;
      readonly streams: readonly bigint[];
    }
  | { readonly kind: 'end'; readonly key: number };

/** A plan as the summary shows it. */
export interface PlanFacts {
  /** Allocations and frees per step; requests in the plan. */
  readonly period: number;
  readonly requests: number;
  readonly turns: number;
  /** Steps seen before it was made. */
  readonly steps: number;
  readonly footprint: number;
  readonly lowerBound: number;
  /** Reserved bytes at that time, and expected when the plan is followed. */
  readonly from: number;
  readonly expected: number;
  readonly detectMs: number;
  readonly planMs: number;
}

export type PlanAnswer =
  /** So many rows were processed. */
  | { readonly kind: 'taken'; readonly key: number; readonly rows: number }
  /** The plan file of that number is ready. */
  | { readonly kind: 'planned'; readonly key: number; readonly generation: number; readonly facts: PlanFacts }
  /** The process has a plan for this step already. */
  | { readonly kind: 'known'; readonly key: number }
  | { readonly kind: 'watching' | 'declined'; readonly key: number; readonly reason: string };

/** Numbers per row: kind and stream, address, size. A mark has the number of its kind in place of the address. */
export const PACKED = 3;
const STREAM_UNIT = 256;

export interface PackedRow {
  readonly kind: number;
  readonly stream: number;
}

export function unpackHead(head: number): PackedRow {
  return { kind: head % STREAM_UNIT, stream: Math.floor(head / STREAM_UNIT) };
}

const WATCHED: ReadonlySet<number> = new Set([EventKind.Alloc, EventKind.FreeRequested, EventKind.FreeCompleted, EventKind.Mark]);

/** GPUs that appear in the rows. */
export function devicesOf(rows: Buffer): Set<number> {
  const found = new Set<number>();
  for (let row = 0; row + EVENT_BYTES <= rows.length; row += EVENT_BYTES) found.add(rows.readUInt16LE(row + EventOffset.device));
  return found;
}

/** Rows of one GPU that a planner needs: requests in the default pool, and marks to which `markOf` gives a number from 0 on. */
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
