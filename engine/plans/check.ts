// The invariants of planned blocks and of the memory behind them. The numbers are those of abi/engine.ts.

import { planBlocks, planBytes, planCount } from '../abi/counters';
import { Rule, State } from '../abi/numbers';
import { ownerOf } from '../records/arena-table';
import { handleAt, handleIndex, NO_HANDLE } from '../records/handles';
import { NO_RANGE, NO_STITCH } from '../records/nodes';
import { pieceHandle, pieceOffset } from '../records/pieces';
import { newestPlanned } from './blocks';
import { areFree, cellCount, edgeAt, takenCells } from './cells';
import { placeOf, planAt } from './installed';
import { heldPieces, lentRange, planStitch } from './memory';
import { sizeAt } from './position';

/** `lentBytes`: the bytes of all ranges of state Planned. */
export function checkPlanned(lentBytes: u64): u32 {
  if (lentBytes !== planBytes) return Rule.PlannedBytes;
  const stitch = planStitch();
  if (stitch === NO_STITCH) return planBytes === 0 && planBlocks === 0 ? 0 : Rule.PlannedBytes;
  if (stitch.usable || stitch.live !== 1 || heldPieces() > stitch.count) return Rule.PlannedHandles;
  let end: u64 = 0;
  for (let index: u32 = 0; index < heldPieces(); index++) {
    const handle = pieceHandle(stitch, index);
    const range = lentRange(index);
    if (handle === NO_HANDLE || pieceOffset(stitch, index) !== end) return Rule.PlannedHandles;
    if (range.state !== State.Planned || range.address !== handle.address || range.size !== handle.bytes) return Rule.PlannedHandles;
    if (ownerOf(range) !== stitch.arena || handleAt(handle.region, handleIndex(handle.region, handle.address)) !== handle)
      return Rule.PlannedHandles;
    end += handle.bytes;
  }
  if (end !== planBytes) return Rule.PlannedBytes;
  let cells: u32 = 0;
  let count: u32 = 0;
  for (let block = newestPlanned(); block !== NO_RANGE; block = block.olderPlanned) {
    const offset = block.address - stitch.address;
    if (block.va !== block.address || block.nextPiece !== NO_RANGE || ownerOf(block) !== stitch.arena) return Rule.PlannedPlace;
    if (block.address < stitch.address || offset + block.size > planBytes || block.endCell > cellCount()) return Rule.PlannedPlace;
    if ((<u64>edgeAt(block.firstCell)) << 9 !== offset || (<u64>edgeAt(block.endCell)) << 9 !== offset + block.size)
      return Rule.PlannedPlace;
    if (block.olderPlanned !== NO_RANGE && block.olderPlanned.newerPlanned !== block) return Rule.PlannedPlace;
    for (let cell = block.firstCell; cell < block.endCell; cell++) if (areFree(cell, cell + 1)) return Rule.PlannedCells;
    cells += block.endCell - block.firstCell;
    count++;
  }
  if (cells !== takenCells() || count !== planBlocks) return Rule.PlannedCells;
  return checkPlaces();
}

/** The cells of every place lie between its edges. */
function checkPlaces(): u32 {
  for (let index: u32 = 0; index < planCount; index++) {
    const plan = planAt(index);
    for (let request: u32 = 0; request < plan.count; request++) {
      for (let turn: u32 = 0; turn < plan.turns; turn++) {
        const place = placeOf(plan, request, turn);
        const start = load<u64>(place);
        if ((<u64>edgeAt(load<u32>(place, 8))) << 9 !== start) return Rule.CellsOfPlace;
        if ((<u64>edgeAt(load<u32>(place, 12))) << 9 !== start + ((<u64>sizeAt(plan, request)) << 9)) return Rule.CellsOfPlace;
      }
    }
  }
  return 0;
}
