// Finds out what really happened in a recorded run, by the rules of the PyTorch version that made it.
import { DEFAULT_RULES, PYTORCH_RULES, recordedRules } from '../allocator/pytorch/versions.ts';
import { recordedEngine } from '../trace/summary.ts';
import type { Trace } from '../trace/trace.ts';
import { reconstructOnEngine } from './reconstruct-engine.ts';
import { differing, isExact, type Reconstruction, type ReconstructOptions } from './reconstruction.ts';
import { Reconstructor } from './reconstructor.ts';

export function reconstruct(trace: Trace, options: ReconstructOptions = {}): Reconstruction {
  const engine = recordedEngine(trace);
  if (engine) return reconstructOnEngine(trace, engine, options);
  const rules = options.rules ?? recordedRules(trace.settings);
  const first = new Reconstructor(trace, options, rules ?? DEFAULT_RULES).run();
  if (rules) return { ...first, rulesOrigin: 'recorded' };
  // Most snapshots do not say which version made them. An observer has seen this run, so its owner decides about another.
  if (options.observer || isExact(first)) return first;
  return matchRules(trace, options, first);
}

/** Tries the rules of other versions. The ones that repeat the recording best are those that it was made with. */
export function matchRules<Known extends Omit<Reconstruction, 'allocator'>>(
  trace: Trace,
  options: ReconstructOptions,
  first: Known,
): Known | Reconstruction {
  let best: Known | Reconstruction = first;
  for (const rules of PYTORCH_RULES) {
    if (rules === first.rules || isExact(best)) continue;
    const tried = new Reconstructor(trace, options, rules).run();
    if (differing(tried) < differing(best)) best = { ...tried, rulesOrigin: 'matched' };
  }
  return best;
}
