// Replays a whole trace in one call, so that no event crosses the border of the engine.
import { ReplayEvent } from './abi/numbers';
import { endBlock, mallocBlock } from './blocks';
import { NO_RANGE, Range } from './records/nodes';

/**
 * Replays `count` events. `slots`: a u32 per slot, 0 at first. `addresses`: 0, or a u64 per event for the address that the
 * request got (0 if it failed). Gives the number of failed requests.
 */
export function replayEvents(events: usize, count: u32, slots: usize, addresses: usize): u32 {
  let failed: u32 = 0;
  for (let index: usize = 0; index < <usize>count; index++) {
    const event = events + index * ReplayEvent.BYTES;
    const slot = slots + ((<usize>load<u32>(event, ReplayEvent.Slot)) << 2);
    const bytes = load<u64>(event, ReplayEvent.Bytes);
    let address: u64 = 0;
    if (bytes !== 0) {
      const block = mallocBlock(bytes, load<u16>(event, ReplayEvent.Stream), load<u16>(event, ReplayEvent.Pool));
      store<usize>(slot, changetype<usize>(block));
      if (block === NO_RANGE) failed++;
      else address = block.va;
    } else {
      const block = changetype<Range>(load<usize>(slot));
      if (block !== NO_RANGE) {
        endBlock(block);
        store<usize>(slot, 0);
      }
    }
    if (addresses !== 0) store<u64>(addresses + (index << 3), address);
  }
  return failed;
}
