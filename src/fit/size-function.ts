// The size of a block as a function of the parameters, learned from its sizes in a few runs.
// Where the runs do not settle the function, it is an interval: `lower` and `upper` differ.
import { roundUp } from '../base/bytes.ts';
import { degreeOf, type Monomial, type Point, plainMonomials, tiledMonomials, valueAt } from './monomials.ts';

/** The size of the same block in one run. */
export interface Sample {
  readonly point: Point;
  readonly size: number;
}

export type FunctionKind = 'constant' | 'proportional' | 'sum' | 'rounded' | 'open';

export interface SizeFunction {
  readonly kind: FunctionKind;
  /** Whether more runs agree than the function has coefficients. */
  readonly isChecked: boolean;
  /** The fastest growing product in it; undefined: it is constant or unknown. */
  readonly monomial: Monomial | undefined;
  lower(point: Point): number;
  upper(point: Point): number;
  /** Only of memory that a library may need more or less of, independently of all other blocks: the size for a share of its range. */
  drawn?(point: Point, share: number): number;
}

/** Sizes that kernels and libraries round their buffers up to. */
const ROUNDINGS: readonly number[] = [512, 4096, 65536, 2 ** 20, 2 ** 21];
/** A block of unknown growth may grow as this power of each parameter, if nothing else of the program grows faster. */
const LEAST_OPEN_POWER = 1;

/** The functions of runs with so many parameters. */
export class SizeLearner {
  private readonly plain: readonly Monomial[];
  private readonly tiled: readonly Monomial[];
  private readonly known = new Map<string, SizeFunction>();

  constructor(parameters: number) {
    this.plain = plainMonomials(parameters);
    this.tiled = tiledMonomials(parameters);
  }

  /** `samples` are of different points, in the order of the runs; the last is of the run that the trace is made from. */
  learn(samples: readonly Sample[]): SizeFunction {
    const key = samples.map(({ point, size }) => `${point.join(',')}:${size}`).join(' ');
    let found = this.known.get(key);
    if (!found) {
      found = this.find(samples);
      this.known.set(key, found);
    }
    return found;
  }

  private find(samples: readonly Sample[]): SizeFunction {
    if (samples.length === 1) return openFunction(samples, LEAST_OPEN_POWER);
    const exact = this.exact(samples);
    if (exact) return exact;
    if (samples.length > 2) {
      // Small values can mislead: kernels change with the size. The two largest runs may agree on a function without a summand.
      const latest = this.proportional(samples.slice(-2), this.plain);
      const open = openFunction(samples, LEAST_OPEN_POWER);
      return latest ? { ...envelope([latest, open]), kind: 'open', monomial: latest.monomial } : open;
    }
    const plausible = this.plausible(samples);
    return plausible.length > 0 ? envelope(plausible) : openFunction(samples, LEAST_OPEN_POWER);
  }

  /** A function that at least one sample more than it has coefficients agrees on. */
  private exact(samples: readonly Sample[]): SizeFunction | undefined {
    const last = samples.at(-1)!;
    if (samples.every(({ size }) => size === last.size)) return constant(last.size);
    const proportional = this.proportional(samples, this.plain);
    if (proportional) return proportional;
    const tiled = this.proportional(samples, this.tiled);
    if (samples.length === 2) return tiled;
    const sum = this.sums(samples)[0] ?? (tiled ? undefined : this.tiledSum(samples));
    if (sum) return tiled ? { ...envelope([tiled, sum]), isChecked: false } : { ...sum, isChecked: true };
    if (tiled) return tiled;
    const rounded = this.rounded(samples);
    return rounded && { ...rounded, isChecked: true };
  }

  private proportional(samples: readonly Sample[], monomials: readonly Monomial[]): SizeFunction | undefined {
    const last = samples.at(-1)!;
    for (const monomial of monomials) {
      const unit = valueAt(monomial, last.point);
      const at = (point: Point) => ratioOf(last.size, valueAt(monomial, point), unit);
      // Of equal products nothing is learned, such as of batch * length = 4 * 8 = 8 * 4.
      if (samples.every(({ point }) => valueAt(monomial, point) === unit)) continue;
      if (samples.every(({ point, size }) => isEqualRatio(size, last.size, valueAt(monomial, point), unit)))
        return { kind: 'proportional', isChecked: true, monomial, lower: at, upper: at };
    }
    return undefined;
  }

  /** Sums of two products that agree with all samples, the slowest growing first. */
  private sums(samples: readonly Sample[]): SizeFunction[] {
    const found: SizeFunction[] = [];
    const products = [CONSTANT, ...this.plain];
    for (let larger = 1; larger < products.length; larger++) {
      for (let smaller = 0; smaller < larger; smaller++) {
        const sum = summed(samples, products[smaller]!, products[larger]!);
        if (sum) found.push(sum);
      }
    }
    return found;
  }

  private tiledSum(samples: readonly Sample[]): SizeFunction | undefined {
    for (const monomial of this.tiled) {
      const sum = summed(samples, CONSTANT, monomial);
      if (sum) return sum;
    }
    return undefined;
  }

  private rounded(samples: readonly Sample[]): SizeFunction | undefined {
    for (const monomial of this.plain) {
      for (const unit of ROUNDINGS) {
        const found = roundedUp(samples, monomial, unit);
        if (found) return found;
      }
    }
    return undefined;
  }

  /** For two samples: every function with two coefficients that they allow. */
  private plausible(samples: readonly Sample[]): SizeFunction[] {
    const rounded = this.rounded(samples);
    return [...this.sums(samples), ...(rounded ? [rounded] : [])];
  }
}

const CONSTANT: Monomial = { powers: [], tile: 1 };

function constant(size: number): SizeFunction {
  return { kind: 'constant', isChecked: true, monomial: undefined, lower: () => size, upper: () => size };
}

/** Whether a / b = c / d, without rounding errors. */
function isEqualRatio(a: number, b: number, c: number, d: number): boolean {
  const [left, right] = [a * d, b * c];
  return Number.isSafeInteger(left) && Number.isSafeInteger(right) ? left === right : BigInt(a) * BigInt(d) === BigInt(b) * BigInt(c);
}

/** size * by / over without rounding errors; rounded up if it is no whole number. */
function ratioOf(size: number, by: number, over: number): number {
  const product = size * by;
  if (Number.isSafeInteger(product)) return Math.ceil(product / over);
  const exact = BigInt(size) * BigInt(by);
  const divisor = BigInt(over);
  return Number(exact / divisor + (exact % divisor === 0n ? 0n : 1n));
}

/** p * smaller + q * larger through the first and the last sample, if p and q are whole, not negative, and fit the others. */
function summed(samples: readonly Sample[], smaller: Monomial, larger: Monomial): SizeFunction | undefined {
  const [first, last] = [samples[0]!, samples.at(-1)!];
  const [a, b, c, d] = [
    valueAt(smaller, first.point),
    valueAt(larger, first.point),
    valueAt(smaller, last.point),
    valueAt(larger, last.point),
  ];
  const determinant = a * d - b * c;
  if (determinant === 0) return undefined;
  const p = (first.size * d - last.size * b) / determinant;
  const q = (last.size * a - first.size * c) / determinant;
  if (!Number.isInteger(p) || !Number.isInteger(q) || p < 0 || q <= 0) return undefined;
  const at = (point: Point) => p * valueAt(smaller, point) + q * valueAt(larger, point);
  if (!samples.every(({ point, size }) => at(point) === size)) return undefined;
  return { kind: p === 0 ? 'proportional' : 'sum', isChecked: samples.length > 2, monomial: larger, lower: at, upper: at };
}

/** c * monomial rounded up to `unit`. Several c fit, so this is an interval. */
export function roundedUp(samples: readonly Sample[], monomial: Monomial, unit: number): SizeFunction | undefined {
  let least = 0;
  let most = Number.POSITIVE_INFINITY;
  for (const { point, size } of samples) {
    if (size % unit !== 0) return undefined;
    least = Math.max(least, (size - unit) / valueAt(monomial, point));
    most = Math.min(most, size / valueAt(monomial, point));
  }
  if (least >= most) return undefined;
  const lower = (point: Point) => roundUp(Math.max(1, Math.floor(least * valueAt(monomial, point)) + 1), unit);
  const upper = (point: Point) => roundUp(Math.floor(most * valueAt(monomial, point)), unit);
  return { kind: 'rounded', isChecked: samples.length > 2, monomial, lower, upper };
}

/**
 * No function fits. The block may stay as it is or grow with all parameters; `power` is how fast the program grows.
 * Its growth between the runs is a lower bound of its power.
 */
export function openFunction(samples: readonly Sample[], power: number): SizeFunction {
  const last = samples.at(-1)!;
  const least = samples.reduce((size, sample) => Math.min(size, sample.size), last.size);
  const most = samples.reduce((size, sample) => Math.max(size, sample.size), last.size);
  const first = samples[0]!;
  const grown = samples.length > 1 && first.size > 0 ? last.size / first.size : 1;
  const by = samples.length > 1 ? growthOf(first.point, last.point) : 1;
  const seen = grown > 1 && by > 1 ? Math.min(3, Math.log(grown) / Math.log(by)) : 0;
  const fastest = Math.max(power, seen);
  const bound = (point: Point, isUpper: boolean) => {
    const growth = growthOf(last.point, point) ** fastest;
    return Math.max(1, Math.round(isUpper ? most * Math.max(1, growth) : least * Math.min(1, growth)));
  };
  return {
    kind: 'open',
    isChecked: false,
    monomial: undefined,
    lower: (point) => bound(point, false),
    upper: (point) => bound(point, true),
  };
}

/** A function that may not hold for larger values: the block may also stay as it is, or grow as fast as the program. */
export function doubted(size: SizeFunction, last: Sample, power: number): SizeFunction {
  return { ...envelope([size, openFunction([last], power)]), kind: 'open', monomial: size.monomial };
}

/** How much larger all parameters together are. */
export function growthOf(from: Point, to: Point): number {
  return to.reduce((product, value, index) => product * (value / from[index]!), 1);
}

/** From the smallest to the largest of several functions. */
function envelope(functions: readonly SizeFunction[]): SizeFunction {
  if (functions.length === 1) return functions[0]!;
  const fastest = functions.reduce((a, b) => (degreeOf(b.monomial?.powers ?? []) > degreeOf(a.monomial?.powers ?? []) ? b : a));
  return {
    kind: functions[0]!.kind,
    isChecked: false,
    monomial: fastest.monomial,
    lower: (point) => functions.reduce((least, each) => Math.min(least, each.lower(point)), Number.POSITIVE_INFINITY),
    upper: (point) => functions.reduce((most, each) => Math.max(most, each.upper(point)), 0),
  };
}

/** Whether the function gives one size, not an interval, at a point. */
export function isSettledAt(size: SizeFunction, point: Point): boolean {
  return size.lower(point) === size.upper(point);
}
