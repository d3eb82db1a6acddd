// The invariants of planned blocks and of the memory they lie in, by number as in src/allocator/engine/rules.ts.

import { handleAt, handleIndex } from './handles';
import { NO_HANDLE, NO_RANGE, NO_VIEW, ownerOf, State } from './nodes';
import { pieceHandle, pieceOffset } from './pieces';
import { endCell, firstCell, newestPlanned, plannedBlocks } from './planned-blocks';
import { areFree, cellCount, edgeAt, takenCells } from './planned-cells';
import { heldBytes, heldPieces, lentRange, plannedView } from './planned-memory';
import { placeOf, planAt, planCount } from './planned-plans';
import { sizeAt } from './planned-position';

/** `lentBytes`: bytes of all ranges of state Planned. */
export function checkPlanned(lentBytes: u64): u32 {
  if (lentBytes !== heldBytes) return 63;
  const view = plannedView();
  if (view === NO_VIEW) return heldBytes === 0 && plannedBlocks() === 0 ? 0 : 63;
  if (view.usable || view.live !== 1 || heldPieces() > view.count) return 62;
  let end: u64 = 0;
  for (let index: u32 = 0; index < heldPieces(); index++) {
    const handle = pieceHandle(view, index);
    const range = lentRange(index);
    if (handle === NO_HANDLE || pieceOffset(view, index) !== end) return 62;
    if (range.state !== State.Planned || range.address !== handle.address || range.size !== handle.bytes) return 62;
    if (ownerOf(range) !== view.arena || handleAt(handle.region, handleIndex(handle.region, handle.address)) !== handle) return 62;
    end += handle.bytes;
  }
  if (end !== heldBytes) return 63;
  let cells: u32 = 0;
  let count: u32 = 0;
  for (let block = newestPlanned(); block !== NO_RANGE; block = block.next) {
    const offset = block.address - view.address;
    if (block.va !== block.address || block.left !== NO_RANGE || ownerOf(block) !== view.arena) return 60;
    if (block.address < view.address || offset + block.size > heldBytes || endCell(block) > cellCount()) return 60;
    if ((<u64>edgeAt(firstCell(block))) << 9 !== offset || (<u64>edgeAt(endCell(block))) << 9 !== offset + block.size) return 60;
    if (block.next !== NO_RANGE && block.next.prev !== block) return 60;
    for (let cell = firstCell(block); cell < endCell(block); cell++) if (areFree(cell, cell + 1)) return 61;
    cells += endCell(block) - firstCell(block);
    count++;
  }
  if (cells !== takenCells() || count !== plannedBlocks()) return 61;
  return checkPlaces();
}

/** The cells of every place are those between its edges. */
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
