// Replays a whole trace in one call, so that no event crosses the border of the engine.
import { completeBlock, freeBlock, mallocBlock } from './blocks';
import { NO_RANGE, Range } from './records/nodes';

/**
 * An event: slot (u32), stream (u16), pool (u16), bytes (u64). With bytes: a request, kept in the slot. Without: a free of the
 * slot.
 */
const EVENT: usize = 16;

/**
 * Replays `count` events. `slots`: a u32 per slot, 0 at first. `addresses`: 0, or a u64 per event for the address that the
 * request got (0 if it failed). Gives the number of failed requests.
 */
export function replayEvents(events: usize, count: u32, slots: usize, addresses: usize): u32 {
  let failed: u32 = 0;
  for (let index: usize = 0; index < <usize>count; index++) {
    const event = events + index * EVENT;
    const slot = slots + ((<usize>load<u32>(event)) << 2);
    const bytes = load<u64>(event, 8);
    let address: u64 = 0;
    if (bytes !== 0) {
      const block = mallocBlock(bytes, load<u16>(event, 4), load<u16>(event, 6));
      store<usize>(slot, changetype<usize>(block));
      if (block === NO_RANGE) failed++;
      else address = block.va;
    } else {
      const block = changetype<Range>(load<usize>(slot));
      if (block !== NO_RANGE) {
        freeBlock(block);
        completeBlock(block);
        store<usize>(slot, 0);
      }
    }
    if (addresses !== 0) store<u64>(addresses + (index << 3), address);
  }
  return failed;
}
