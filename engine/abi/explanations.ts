// The explanation of the last failed request, by number. The order is part of the ABI; abi/failure.ts has the values.
import { allocatedThen, askedThen, assemblableThen, callThen, elsewhereThen, freeThen, largestThen, reservedThen } from './failure';

export function explanationOf(index: u32): u64 {
  switch (index) {
    case 0:
      return askedThen;
    case 1:
      return allocatedThen;
    case 2:
      return reservedThen;
    case 3:
      return freeThen;
    case 4:
      return largestThen;
    case 5:
      return assemblableThen;
    case 6:
      return callThen;
    case 7:
      return elsewhereThen;
  }
  return 0;
}
