// How much memory may be held before stitching is preferred to growing.
import { inUse, neededInUse } from '../abi/counters';
import { ceiling, sharedSlackShare, slackBytes, slackShare } from '../abi/settings';
import { larger } from '../base/units';

/** Whether other streams can lend to the stream of the current request. */
export let hasLenders: bool = false;

export function noteLenders(there: bool): void {
  hasLenders = there;
}

/** Reserved memory up to which growing is preferred to stitching. */
export function budgetWith(size: u64): u64 {
  const peak = larger(neededInUse, inUse + size);
  return larger(ceiling, peak + larger(slackBytes, (peak >> 16) * (hasLenders ? sharedSlackShare : slackShare)));
}
