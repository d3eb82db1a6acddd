// How PyTorch rounds requests and sizes segments: its constants and two functions.
import { MIB, roundUp } from '../../base/bytes.ts';
import { SMALL_SEGMENT } from '../../trace/start-state.ts';
import type { PyTorchSettings } from './settings.ts';

/** Smallest block. Requests are rounded up to multiples of it. */
export const MIN_BLOCK = 512;
/** Rounded requests up to this size live in the small pool. */
export const SMALL_REQUEST: number = MIB;
/** Large requests below this size share segments of `largeSegmentSize`. Others get a segment of their own. */
const MIN_OWN_SEGMENT = 10 * MIB;
/** The size of a segment for one request is a multiple of this. */
const SEGMENT_UNIT = 2 * MIB;
/** A large block is split only if more than this is left. */
export const MIN_LARGE_REMAINDER: number = MIB;
/** PyTorch refuses requests of this size and more without trying. */
export const ABSURD_REQUEST: number = 2 ** 60;

export function roundRequest(requested: number, settings: PyTorchSettings): number {
  if (requested < MIN_BLOCK) return MIN_BLOCK;
  const log = floorLog2(requested);
  const divisions = settings.roundupPower2Divisions[Math.min(15, Math.max(0, log - 20))]!;
  if (divisions > 1 && requested > MIN_BLOCK * divisions) {
    const power = 2 ** log;
    return requested === power ? requested : roundUp(requested, power / divisions);
  }
  return roundUp(requested, MIN_BLOCK);
}

export function segmentSizeFor(rounded: number, settings: PyTorchSettings): number {
  if (rounded <= SMALL_REQUEST) return SMALL_SEGMENT;
  if (rounded < MIN_OWN_SEGMENT) return settings.largeSegmentSize;
  return roundUp(rounded, SEGMENT_UNIT);
}

/** Exact for every safe integer, unlike Math.log2. */
function floorLog2(value: number): number {
  return value >= 4294967296 ? 63 - Math.clz32(Math.floor(value / 4294967296)) : 31 - Math.clz32(value);
}
