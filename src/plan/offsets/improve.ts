// Squeaky-wheel improvement: buffers that stick out at the top are placed earlier in the next round.
// Cheap for inputs of any size, and never worse than its start.
import type { Layout } from './buffers.ts';
import { fitInOrder } from './first-fit.ts';
import type { Instance } from './instance.ts';
import { randomFrom } from './random.ts';

const PATIENCE = 60;

export interface ImproveOptions {
  readonly seed: number;
  readonly shouldStop: () => boolean;
  readonly onFound: (layout: Layout) => void;
}

export function improveOrder(instance: Instance, start: Int32Array, layout: Layout, options: ImproveOptions): void {
  const random = randomFrom(options.seed);
  let best = layout;
  let bestOrder = start;
  let order = start;
  let current = layout;
  let failures = 0;
  while (best.footprint > instance.lowerBound && !options.shouldStop()) {
    // A target slightly below the best makes more buffers stick out than the topmost one.
    const target = Math.max(instance.lowerBound, best.footprint * (1 - 0.01 * random()));
    order = moveEarlier(instance, order, current, target, random);
    current = fitInOrder(instance, order, random() < 0.8 ? 'first' : 'best');
    if (current.footprint < best.footprint) {
      best = current;
      bestOrder = order;
      failures = 0;
      options.onFound(best);
    } else if (++failures % PATIENCE === 0) {
      order = bestOrder;
      current = best;
    }
  }
}

function moveEarlier(instance: Instance, order: Int32Array, layout: Layout, target: number, random: () => number): Int32Array {
  const place = new Float64Array(order.length);
  order.forEach((buffer, at) => {
    const sticksOut = layout.offsets[buffer]! + instance.size[buffer]! > target;
    place[buffer] = sticksOut ? at * random() - 0.5 : at;
  });
  // A few random moves prevent cycles.
  for (let moves = 0; moves < 2; moves++) {
    const buffer = order[Math.floor(random() * order.length)]!;
    place[buffer] = random() * order.length;
  }
  return order.slice().sort((a, b) => place[a]! - place[b]! || a - b);
}
