// What driver calls cost by size, measured on an H200 (driver 580, CUDA 13.0).
// Costs are interpolated between measured sizes and extrapolated from the last two beyond them.
import { MIB } from '../base/bytes.ts';

export interface DriverCosts {
  readonly create: Curve;
  readonly release: Curve;
  readonly map: Curve;
  /** Per handle in the range: the driver charges by handle, not by byte, even if one call covers them all. */
  readonly setAccessPerHandle: Curve;
  readonly unmap: Curve;
  readonly malloc: Curve;
  readonly free: Curve;
  /** Independent of size. */
  readonly reserveUs: number;
}

/** A piecewise linear function from bytes to microseconds through measured points. */
export class Curve {
  private readonly points: readonly (readonly [bytes: number, microseconds: number])[];

  constructor(pointsInMib: readonly (readonly [mib: number, microseconds: number])[]) {
    this.points = pointsInMib.map(([mib, microseconds]) => [mib * MIB, microseconds]);
  }

  at(bytes: number): number {
    const { points } = this;
    const first = points[0]!;
    if (bytes <= first[0]) return first[1];
    for (let index = 1; index < points.length; index++) {
      const [right, rightUs] = points[index]!;
      if (bytes > right && index < points.length - 1) continue;
      const [left, leftUs] = points[index - 1]!;
      return leftUs + ((rightUs - leftUs) * (bytes - left)) / (right - left);
    }
    return first[1];
  }
}

/** Handle sizes of the measurement, MiB. */
const HANDLES = [2, 4, 16, 64, 256, 1024] as const;

function perHandle(...microseconds: number[]): Curve {
  return new Curve(HANDLES.map((mib, index) => [mib, microseconds[index]!]));
}

export const H200_COSTS: DriverCosts = {
  create: perHandle(9.0, 9.7, 8.9, 8.7, 11.5, 14.7),
  map: perHandle(1.06, 0.68, 0.58, 0.74, 0.67, 0.73),
  setAccessPerHandle: perHandle(26.8, 24.9, 22.4, 24.3, 32.4, 55.4),
  unmap: perHandle(17.2, 15.2, 14.9, 14.6, 17.1, 25.6),
  release: perHandle(11.3, 14.3, 13.2, 32.3, 83.3, 297),
  malloc: new Curve([
    [2, 30],
    [20, 31],
    [256, 51],
    [2048, 146],
  ]),
  free: new Curve([
    [2, 26],
    [20, 31],
    [256, 98],
    [2048, 581],
  ]),
  // The middle of what was measured, 3 to 34 us.
  reserveUs: 18,
};
