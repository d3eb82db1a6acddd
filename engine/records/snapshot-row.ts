// A row of the snapshot: one range as eight numbers.
import { SnapshotRow, State } from '../abi/numbers';
import { Arena, Range } from './nodes';

export function writeRow(row: usize, arena: Arena, range: Range): void {
  const isBlock = range.state === State.Live || range.state === State.Pending || range.state === State.Parked;
  // A Piece shows the state of its block.
  const state = range.state === State.Piece ? range.head.state : range.state;
  store<f64>(row, <f64>(<i64>range.address), SnapshotRow.Address);
  store<f64>(row, <f64>(<i64>range.size), SnapshotRow.Size);
  store<f64>(row, isBlock && range.state !== State.Parked ? <f64>(<i64>range.requested) : 0, SnapshotRow.Requested);
  store<f64>(row, isBlock ? <f64>(<i64>range.va) : 0, SnapshotRow.Given);
  store<f64>(row, <f64>state, SnapshotRow.State);
  store<f64>(row, <f64>arena.stream, SnapshotRow.Stream);
  store<f64>(row, <f64>arena.pool, SnapshotRow.Pool);
  store<f64>(row, arena.small ? 1 : 0, SnapshotRow.Small);
}
