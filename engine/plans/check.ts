// The invariants of planned blocks and of the memory behind them. The numbers are those of src/allocator/engine/rules.ts.

import { planBlocks, planBytes, planCount } from '../abi/counters';
import { State } from '../abi/range-states';
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
  if (lentBytes !== planBytes) return 63;
  const stitch = planStitch();
  if (stitch === NO_STITCH) return planBytes === 0 && planBlocks === 0 ? 0 : 63;
  if (stitch.usable || stitch.live !== 1 || heldPieces() > stitch.count) return 62;
  let end: u64 = 0;
  for (let index: u32 = 0; index < heldPieces(); index++) {
    const handle = pieceHandle(stitch, index);
    const range = lentRange(index);
    if (handle === NO_HANDLE || pieceOffset(stitch, index) !== end) return 62;
    if (range.state !== State.Planned || range.address !== handle.address || range.size !== handle.bytes) return 62;
    if (ownerOf(range) !== stitch.arena || handleAt(handle.region, handleIndex(handle.region, handle.address)) !== handle) return 62;
    end += handle.bytes;
  }
  if (end !== planBytes) return 63;
  let cells: u32 = 0;
  let count: u32 = 0;
  for (let block = newestPlanned(); block !== NO_RANGE; block = block.olderPlanned) {
    const offset = block.address - stitch.address;
    if (block.va !== block.address || block.nextPiece !== NO_RANGE || ownerOf(block) !== stitch.arena) return 60;
    if (block.address < stitch.address || offset + block.size > planBytes || block.endCell > cellCount()) return 60;
    if ((<u64>edgeAt(block.firstCell)) << 9 !== offset || (<u64>edgeAt(block.endCell)) << 9 !== offset + block.size) return 60;
    if (block.olderPlanned !== NO_RANGE && block.olderPlanned.newerPlanned !== block) return 60;
    for (let cell = block.firstCell; cell < block.endCell; cell++) if (areFree(cell, cell + 1)) return 61;
    cells += block.endCell - block.firstCell;
    count++;
  }
  if (cells !== takenCells() || count !== planBlocks) return 61;
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
        if ((<u64>edgeAt(load<u32>(place, 8))) << 9 !== start) return 64;
        if ((<u64>edgeAt(load<u32>(place, 12))) << 9 !== start + ((<u64>sizeAt(plan, request)) << 9)) return 64;
      }
    }
  }
  return 0;
}
