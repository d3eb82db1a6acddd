// SmartPool's planner (arXiv 1903.06631) as in its authors' code, for comparison: largest block first, best fit.
// A block that lives across the end of a step gets two places. Our planner treats time as a circle instead.

import type { Layout } from '../offsets/buffers.ts';
import type { Step } from './step.ts';

export interface SmartPoolPlan {
  /** Size of the pool in bytes: two regions for blocks that cross the end of the step, one for the others. */
  readonly pool: number;
  readonly crossing: number;
  readonly normal: number;
  /** The pool and the blocks that live through the whole run, in bytes. */
  readonly total: number;
}

interface Vertex {
  readonly from: number;
  readonly to: number;
  readonly size: number;
}

export function planSmartPool(step: Step): SmartPoolPlan {
  const normal: Vertex[] = [];
  const crossing: Vertex[] = [];
  for (const block of step.blocks) {
    const crosses = block.death > step.period;
    const vertex = { from: block.birth, to: Math.min(block.death, step.period), size: block.size };
    (crosses ? crossing : normal).push(vertex);
  }
  const crossingBytes = colour(crossing).footprint;
  const normalBytes = colour(normal).footprint;
  const pool = 2 * crossingBytes + normalBytes;
  return { pool, crossing: crossingBytes, normal: normalBytes, total: pool + step.wholeRunBytes };
}

/** Weighted colouring of the interval graph: largest block first, each into the smallest hole that fits. */
function colour(vertices: readonly Vertex[]): Layout {
  const offsets = new Float64Array(vertices.length).fill(-1);
  const order = vertices
    .map((_, index) => index)
    .sort((a, b) => vertices[b]!.size - vertices[a]!.size || vertices[a]!.from - vertices[b]!.from);
  let footprint = 0;
  for (const index of order) {
    const vertex = vertices[index]!;
    const taken: { from: number; to: number }[] = [];
    vertices.forEach((other, at) => {
      if (offsets[at]! < 0 || other.from >= vertex.to || other.to <= vertex.from) return;
      taken.push({ from: offsets[at]!, to: offsets[at]! + other.size });
    });
    taken.sort((a, b) => a.from - b.from);
    let top = 0;
    let best = -1;
    let bestRoom = Number.POSITIVE_INFINITY;
    for (const range of taken) {
      const room = range.from - top - vertex.size;
      if (room >= 0 && room < bestRoom) {
        best = top;
        bestRoom = room;
      }
      top = Math.max(top, range.to);
    }
    offsets[index] = best >= 0 ? best : top;
    footprint = Math.max(footprint, offsets[index]! + vertex.size);
  }
  return { offsets, footprint };
}
