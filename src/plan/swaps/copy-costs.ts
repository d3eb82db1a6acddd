// Time of a copy between the GPU and the host, in each direction: alone, and while the other direction is busy.
// Two sets of measured figures.

export interface CopyCosts {
  readonly name: string;
  readonly out: CopyDirection;
  readonly in: CopyDirection;
}

export interface CopyDirection {
  readonly fixedUs: number;
  /** Bytes per microsecond, which is also MB/s: 55 GB/s is 55 000. */
  readonly alone: number;
  /** The same while the other direction copies too. */
  readonly both: number;
}

/** Measured on an H200, PCIe 5, pinned host memory: 55 GB/s one way, 50.8 each way when both run. */
export const H200_COPIES: CopyCosts = copyCosts('H200', 55e9, 50.8e9, 8);

/** The fit of the AutoSwap study: PCIe 3 x16, pinned host memory. It ignores the other direction. */
export const AUTOSWAP_COPIES: CopyCosts = {
  name: 'AutoSwap',
  out: { fixedUs: 47.2, alone: 1000 / 0.0756, both: 1000 / 0.0756 },
  in: { fixedUs: 9.7, alone: 1000 / 0.0823, both: 1000 / 0.0823 },
};

/** Bandwidths in bytes per second, equal in both directions. */
export function copyCosts(name: string, alone: number, both: number, fixedUs: number): CopyCosts {
  const direction = { fixedUs, alone: alone / 1e6, both: Math.min(alone, both) / 1e6 };
  return { name, out: direction, in: direction };
}

/** Planned time of a copy. The other direction counts as busy, so a copy never ends later than planned. */
export function plannedUs(direction: CopyDirection, bytes: number): number {
  return direction.fixedUs + bytes / direction.both;
}
