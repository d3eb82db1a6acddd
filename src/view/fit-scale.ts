// The scale of the strips: one for all, so that the request has the same length above each of them.
import type { FitLane } from './fit-view.ts';

export interface FitScale {
  /** Bytes from the left edge to the right one. */
  readonly bytes: number;
  /** The limit is so far away that it is not drawn. */
  readonly isLimitBeyond: boolean;
}

/** A limit further away than this, as a multiple of what is held, would leave no room for the strip. */
const FAR = 1.8;
/** Room behind the end, so that the line of the limit and its label can be seen. */
const MARGIN = 1.01;

export function fitScale(lanes: readonly FitLane[], request: number, packed: number): FitScale {
  const held = Math.max(1, packed, ...lanes.map(({ strip, unplaced }) => strip.reserved + unplaced));
  const limit = Math.max(0, ...lanes.map((lane) => lane.limit ?? 0));
  const isLimitBeyond = limit > held * FAR;
  // A request that dwarfs all memory is cut at the edge.
  const wanted = Math.max(held, isLimitBeyond ? 0 : limit, Math.min(request, held * FAR));
  return { bytes: wanted * MARGIN, isLimitBeyond };
}
