// Memory of a GPU that is not PyTorch's: how it divides, and reading it from a file.
import type { OtherMemory } from './trace.ts';

/** The parts of what is in use and not PyTorch's. */
export interface OtherParts {
  readonly total: number;
  /** CUDA context, NCCL and libraries of this process; undefined: not known apart from `others`. */
  readonly own: number | undefined;
  /** Other processes and the driver; with `own` undefined, everything. */
  readonly others: number;
}

export function otherParts({ used, reserved, process }: OtherMemory): OtherParts {
  const total = Math.max(0, used - reserved);
  if (process === undefined) return { total, own: undefined, others: total };
  // The driver tells both at slightly different moments.
  const own = Math.min(total, Math.max(0, process - reserved));
  return { total, own, others: total - own };
}

/** From a `.weir` file; undefined if it is not that. */
export function otherMemoryFrom(value: unknown): OtherMemory | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { total, used, reserved, process } = value as Record<string, unknown>;
  if (!isQuantity(total) || !isQuantity(used) || !isQuantity(reserved)) return undefined;
  return { total, used, reserved, ...(isQuantity(process) && { process }) };
}

function isQuantity(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}
