// Events as rows of a `.weir` file: from columns to rows, and back.
import { InputError } from '../../base/errors.ts';
import { type EventColumns, EventKind } from '../trace.ts';
import { EVENT_BYTES, EventField, EventOffset } from './format.ts';
import { type AddressCodec, setU64 } from './numbers.ts';
import type { DeviceTables, FileTables } from './tables.ts';

const KNOWN_KINDS: ReadonlySet<number> = new Set(Object.values(EventKind));

/** Writes events `from` to `to` as rows, starting at `at`. */
export function encodeEvents(
  view: DataView,
  at: number,
  device: number,
  events: EventColumns,
  from: number,
  to: number,
  addresses: AddressCodec,
): void {
  const { kind, address, size, timeUs, stream, pool, stack, metadata, detail, thread, compileContext } = events;
  const fields = (detail ? EventField.Detail : 0) | (thread ? EventField.Thread : 0) | (compileContext ? EventField.CompileContext : 0);
  for (let event = from, row = at; event < to; event++, row += EVENT_BYTES) {
    view.setFloat64(row + EventOffset.time_us, checkedTime(timeUs[event]!), true);
    if (kind[event] === EventKind.Oom) setU64(view, row + EventOffset.address, address[event]!);
    else addresses.set(view, row + EventOffset.address, address[event]!);
    if (kind[event] === EventKind.Operator) view.setFloat64(row + EventOffset.size, checkedTime(size[event]!), true);
    else setU64(view, row + EventOffset.size, size[event]!);
    view.setUint8(row + EventOffset.kind, kind[event]!);
    view.setUint8(row + EventOffset.fields, fields);
    view.setUint16(row + EventOffset.device, device, true);
    view.setInt32(row + EventOffset.stream, stream[event]!, true);
    view.setInt32(row + EventOffset.pool, pool[event]!, true);
    view.setInt32(row + EventOffset.stack, stack[event]!, true);
    view.setInt32(row + EventOffset.metadata, metadata[event]!, true);
    if (detail) view.setInt32(row + EventOffset.detail, detail[event]!, true);
    if (thread) view.setInt32(row + EventOffset.thread, thread[event]!, true);
    if (compileContext) view.setInt32(row + EventOffset.compile_context, compileContext[event]!, true);
  }
}

/** Readers refuse a file with an invalid time, so it must not be written. */
export function checkedTime(microseconds: number): number {
  if (!Number.isFinite(microseconds)) throw new InputError(`${microseconds} is not a time`);
  return microseconds;
}

/** Appends the rows at `at` to the events of their GPUs. Returns the number of rows of unknown kinds, which are ignored. */
export function decodeEvents(view: DataView, at: number, rows: number, tables: FileTables): number {
  let unknown = 0;
  let device: DeviceTables | undefined;
  for (let index = 0, row = at; index < rows; index++, row += EVENT_BYTES) {
    const kind = view.getUint8(row + EventOffset.kind) as EventKind;
    if (!KNOWN_KINDS.has(kind)) {
      unknown++;
      continue;
    }
    const deviceIndex = view.getUint16(row + EventOffset.device, true);
    if (device?.device !== deviceIndex) device = tables.deviceAt(deviceIndex);
    const time = view.getFloat64(row + EventOffset.time_us, true);
    if (!Number.isFinite(time)) tables.refuse(`holds an event at the time ${time}`);
    const event = device.events.append(
      kind,
      kind === EventKind.Oom ? tables.bytesAt(view, row + EventOffset.address) : tables.addresses.get(view, row + EventOffset.address),
      kind === EventKind.Operator ? durationAt(view, row, tables) : tables.bytesAt(view, row + EventOffset.size),
      time,
      tables.streamAt(device, view.getInt32(row + EventOffset.stream, true)),
      tables.poolAt(device, view.getInt32(row + EventOffset.pool, true)),
      tables.stackAt(view.getInt32(row + EventOffset.stack, true)),
      tables.stringAt(view.getUint32(row + EventOffset.metadata, true)),
    );
    const fields = view.getUint8(row + EventOffset.fields);
    if (fields !== 0) decodeOptional(view, row, fields, kind, device, event, tables);
  }
  return unknown;
}

function decodeOptional(
  view: DataView,
  row: number,
  fields: number,
  kind: EventKind,
  device: DeviceTables,
  event: number,
  tables: FileTables,
): void {
  if (fields & EventField.Detail) {
    const detail = view.getInt32(row + EventOffset.detail, true);
    device.events.setOptional(event, 'detail', resolveDetail(detail, kind, device, tables));
  }
  if (fields & EventField.Thread) device.events.setOptional(event, 'thread', view.getInt32(row + EventOffset.thread, true));
  if (fields & EventField.CompileContext) {
    device.events.setOptional(event, 'compileContext', tables.stringAt(view.getUint32(row + EventOffset.compile_context, true)));
  }
}

function resolveDetail(detail: number, kind: EventKind, device: DeviceTables, tables: FileTables): number {
  switch (kind) {
    case EventKind.RecordStream:
      return tables.streamAt(device, detail);
    case EventKind.Settings:
    case EventKind.Operator:
    case EventKind.Mark:
      return tables.stringAt(detail);
    default:
      return detail;
  }
}

function durationAt(view: DataView, row: number, tables: FileTables): number {
  const duration = view.getFloat64(row + EventOffset.size, true);
  if (!(duration >= 0 && duration < Number.POSITIVE_INFINITY)) tables.refuse(`holds an operator that took ${duration} microseconds`);
  return duration;
}
