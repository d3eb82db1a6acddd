// Settings under which the models of lending and of swapping meet every way of the engine soon.
import type { EngineSettings } from '../../../src/abi/settings.ts';
import { WEIR_SETTINGS } from '../../../src/allocator/engine/settings.ts';
import { MIB } from '../../../src/base/bytes.ts';

/** No slack, so that memory is used again at once and streams have to lend; small handles, so that borrowed ones are stitched. */
export const TIGHT: EngineSettings = {
  ...WEIR_SETTINGS,
  regionBytes: 256 * MIB,
  fixedHandle: 4 * MIB,
  slackShare: 0,
  slackBytes: 0,
  minStitch: 2 * MIB,
  growthShare: 0,
  sharedSlackShare: 0,
  sharedGrowthShare: 0,
  waitShare: 0,
  eventBytes: 1,
};
