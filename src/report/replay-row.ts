// One line of `weir replay`: an allocator on a backend, and what the run took there.
import type { ReplayResult } from '../replay/replay.ts';
import type { Verification } from '../replay/verifying-allocator.ts';

export interface ReplayRow {
  readonly allocator: string;
  readonly backend: string;
  readonly result: ReplayResult;
  readonly floor: number;
  readonly capacity: number | undefined;
  readonly wallMs: number;
  /** On a real backend: the same replay on the simulated one, with modelled driver time. */
  readonly modelled?: ReplayResult | undefined;
  readonly verification?: Readonly<Verification> | undefined;
  /** What the real backend is. */
  readonly description?: string | undefined;
}
