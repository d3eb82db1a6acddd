// A row of the snapshot: one range as eight numbers.
import { State } from '../abi/range-states';
import { Arena, Range } from './nodes';

/** A row is eight f64: address, size, requested, address given out, state, stream, pool, small. */
export const ROW: usize = 64;

export function writeRow(row: usize, arena: Arena, range: Range): void {
  const isBlock = range.state === State.Live || range.state === State.Pending || range.state === State.Parked;
  // A Piece shows the state of its block.
  const state = range.state === State.Piece ? range.head.state : range.state;
  store<f64>(row, <f64>(<i64>range.address));
  store<f64>(row, <f64>(<i64>range.size), 8);
  store<f64>(row, isBlock && range.state !== State.Parked ? <f64>(<i64>range.requested) : 0, 16);
  store<f64>(row, isBlock ? <f64>(<i64>range.va) : 0, 24);
  store<f64>(row, <f64>state, 32);
  store<f64>(row, <f64>arena.stream, 40);
  store<f64>(row, <f64>arena.pool, 48);
  store<f64>(row, arena.small ? 1 : 0, 56);
}
