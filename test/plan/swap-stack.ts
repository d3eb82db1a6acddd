// A profile as a training process writes it, of a made-up stack of layers.
import type { SwapProfile } from '../../src/plan/swaps/live/profile.ts';

export const H200 = { outAlone: 55e9, inAlone: 55e9, outBoth: 50.8e9, inBoth: 50.8e9, fixedUs: 15 };
export const SLOW = { outAlone: 20e9, inAlone: 20e9, outBoth: 16e9, inBoth: 16e9, fixedUs: 15 };

interface StackOptions extends Partial<SwapProfile> {
  /** Bytes of parameters in each layer. */
  readonly weights?: number;
}

/** Forward and backward of a stack of layers, then an optimizer: activations of `activation` bytes, state of `state`. */
export function stack(layers: number, layerUs: number, activation: number, state: number, options: StackOptions = {}): SwapProfile {
  const { weights = 0, ...more } = options;
  const us = [0];
  const always = layers * (state + weights);
  const live = [always];
  const records = [];
  const passages = [];
  for (let layer = 0; layer < layers; layer++) {
    us.push((layer + 1) * layerUs);
    live.push(live.at(-1)! + activation);
    records.push({ size: activation, first: layer + 1, sole: layer + 2, uses: [2 * layers - layer] });
    if (weights > 0) passages.push({ size: weights, left: layer + 2, needed: 2 * layers - layer });
  }
  for (let layer = 0; layer < layers; layer++) {
    us.push(us.at(-1)! + 2 * layerUs);
    live.push(layer === 0 ? live.at(-1)! : live.at(-1)! - activation);
  }
  us.push(us.at(-1)! + 2 * layerUs);
  live.push(always);
  return {
    key: 'stack',
    periodUs: us.at(-1)! + layerUs,
    ticks: { us, peak: live },
    records,
    passages,
    items: Array.from({ length: layers }, () => ({ size: state, pre: us.length - 1, post: 0 })),
    copies: H200,
    hostLimit: 2 ** 40,
    ...more,
  };
}
