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
  private readonly constant: Monomial;
  private readonly plain: readonly Monomial[];
  private readonly tiled: readonly Monomial[];
  private readonly known = new Map<string, SizeFunction>();

  constructor(parameters: number) {
    const each = Array.from({ length: parameters });
    this.constant = { powers: each.map(() => 0), tiles: each.map(() => 1) };
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
    const last = samples.at(-1)!;
    if (samples.length === 1) return openFunction(samples, LEAST_OPEN_POWER);
    if (samples.every(({ size }) => size === last.size)) return constant(last.size);
    const proportional = this.proportional(samples, this.plain);
    if (proportional) return proportional;
    const found = this.ofTwoCoefficients(samples);
    if (samples.length === 2) {
      // Through two sizes there is a function of each kind, so that none of them is a law.
      const open = openFunction(samples, LEAST_OPEN_POWER);
      const between = [...found, ...this.sums(samples, true), ...curvesThrough(samples)];
      return found.length === 0 ? open : { ...envelope(between), isChecked: false };
    }
    if (found.length > 0) return { ...envelope(found), isChecked: found.length === 1 };
    // Small values can mislead: kernels change with the size. The two largest runs may agree on a function without a summand.
    const latest = this.proportional(samples.slice(-2), this.plain);
    const open = openFunction(samples, LEAST_OPEN_POWER);
    return latest ? { ...envelope([latest, open]), kind: 'open', monomial: latest.monomial } : open;
  }

  /** Every function of a summand, a tile or a rounding and a factor that all samples agree on. */
  private ofTwoCoefficients(samples: readonly Sample[]): SizeFunction[] {
    const tiled = this.proportional(samples, this.tiled);
    // A jump to another kernel looks like a line with a negative summand if there are two sizes only.
    const sums = this.sums(samples, samples.length > 2);
    if (samples.length > 2 && sums.length === 0 && !tiled) sums.push(...this.tiledSum(samples));
    // A small summand looks rounded, too. Three sizes are hardly a sum by chance.
    const rounded = samples.length > 2 && sums.length > 0 ? undefined : this.rounded(samples);
    return [...(tiled ? [tiled] : []), ...sums, ...(rounded ? [rounded] : [])];
  }

  private proportional(samples: readonly Sample[], monomials: readonly Monomial[]): SizeFunction | undefined {
    const last = samples.at(-1)!;
    const found: SizeFunction[] = [];
    for (const monomial of monomials) {
      const unit = valueAt(monomial, last.point);
      const at = (point: Point) => ratioOf(last.size, valueAt(monomial, point), unit);
      // Of equal products nothing is learned, such as of batch * length = 4 * 8 = 8 * 4.
      if (samples.every(({ point }) => valueAt(monomial, point) === unit)) continue;
      if (samples.every(({ point, size }) => isEqualRatio(size, last.size, valueAt(monomial, point), unit)))
        found.push({ kind: 'proportional', isChecked: true, monomial, lower: at, upper: at });
    }
    // Parameters that grew together leave open which of them it is.
    return found.length === 0 ? undefined : envelope(found);
  }

  /** Sums of two products that agree with all samples, the slowest growing first. `isSigned`: differences, too. */
  private sums(samples: readonly Sample[], isSigned: boolean): SizeFunction[] {
    const found: Summed[] = [];
    const products = [this.constant, ...this.plain];
    for (let larger = 1; larger < products.length; larger++) {
      for (let smaller = 0; smaller < larger; smaller++) {
        const sum = summed(samples, products[smaller]!, products[larger]!);
        if (sum && (isSigned || sum.summand >= 0)) found.push(sum);
      }
    }
    // Such as batch * (length - 1). It has one coefficient, so it agrees with the samples by chance less than others.
    const shifted = samples.length > 2 ? found.filter(({ isShifted }) => isShifted) : [];
    return (shifted.length > 0 ? shifted : found).map(({ size }) => size);
  }

  private tiledSum(samples: readonly Sample[]): SizeFunction[] {
    for (const monomial of this.tiled) {
      const sum = summed(samples, this.constant, monomial);
      if (sum && sum.summand >= 0) return [sum.size];
    }
    return [];
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
}

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

interface Summed {
  readonly size: SizeFunction;
  /** The coefficient of the product that grows less. */
  readonly summand: number;
  /** One more or one less of a parameter, times the rest. */
  readonly isShifted: boolean;
}

/** p * smaller + q * larger through the first and the last sample, if p and q are whole, q is positive, and they fit the others. */
function summed(samples: readonly Sample[], smaller: Monomial, larger: Monomial): Summed | undefined {
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
  if (!Number.isInteger(p) || !Number.isInteger(q) || q <= 0) return undefined;
  const at = (point: Point) => Math.max(1, p * valueAt(smaller, point) + q * valueAt(larger, point));
  if (!samples.every(({ point, size }) => at(point) === size)) return undefined;
  const powers = larger.powers.map((power, index) => power - smaller.powers[index]!);
  const isShifted =
    Math.abs(p) === q && degreeOf(powers) === 1 && powers.every((power) => power >= 0) && larger.tiles.every((tile) => tile === 1);
  const kind = p === 0 ? 'proportional' : 'sum';
  return { size: { kind, isChecked: samples.length > 2, monomial: larger, lower: at, upper: at }, summand: p, isShifted };
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
  const seen = samples.length > 1 ? Math.min(MOST_SEEN_POWER, powerBetween(samples[0]!, last)) : 0;
  const fastest = Math.max(power, seen);
  // What grows faster and faster outgrows the power that was seen on average.
  const curves = samples.length > 1 ? samples.slice(0, -1).flatMap((sample) => curvesThrough([sample, last])) : [];
  const bound = (point: Point, isUpper: boolean) => {
    const [slow, fast] = growthRange(last.point, point).map((growth) => growth ** fastest) as [number, number];
    return Math.max(1, Math.round(isUpper ? most * Math.max(1, fast) : least * Math.min(1, slow)));
  };
  return {
    kind: 'open',
    isChecked: false,
    monomial: undefined,
    lower: (point) => bound(point, false),
    upper: (point) => curves.reduce((size, curve) => Math.max(size, curve.upper(point)), bound(point, true)),
  };
}

const MOST_SEEN_POWER = 3;

/** The power of a growth; 0: it did not grow. */
export function powerBetween(first: Sample, last: Sample): number {
  const by = growthOf(first.point, last.point);
  const grown = first.size > 0 ? last.size / first.size : 1;
  return by > 1 && grown > 1 ? Math.log(grown) / Math.log(by) : 0;
}

/**
 * Through two samples: growth with the power between them, and the sum of the two whole powers next to it, which ends up faster.
 * Together they hold what lies between, whatever its coefficients.
 */
function curvesThrough(samples: readonly Sample[]): SizeFunction[] {
  const [first, last] = [samples[0]!, samples.at(-1)!];
  const power = powerBetween(first, last);
  if (power === 0 || power > MOST_SEEN_POWER) return [];
  const before = growthOf(last.point, first.point);
  const whole = Math.floor(power);
  // Up to a byte of a size may come of rounding up.
  const faster = (last.size - (first.size - 1) / before ** whole) / (1 - before);
  const curve = (size: (growth: number) => number): SizeFunction => {
    const at = (growth: number) => Math.max(1, Math.ceil(size(growth) - ROUNDING_ERROR));
    const [lower, upper] = [0, 1].map((end) => (point: Point) => at(growthRange(last.point, point)[end]!)) as [AtPoint, AtPoint];
    return { kind: 'open', isChecked: false, monomial: undefined, lower, upper };
  };
  return [
    curve((growth) => last.size * growth ** power),
    curve((growth) => (last.size - faster) * growth ** whole + faster * growth ** (whole + 1)),
  ];
}

type AtPoint = (point: Point) => number;

/** Bytes that do not matter. */
const ROUNDING_ERROR = 0.001;

/** A function that may not hold for larger values: the block may also stay as it is, or grow as fast as the program. */
export function doubted(size: SizeFunction, last: Sample, power: number): SizeFunction {
  return { ...envelope([size, openFunction([last], power)]), kind: 'open', monomial: size.monomial };
}

/** How much larger all parameters together are. */
export function growthOf(from: Point, to: Point): number {
  return to.reduce((product, value, index) => product * (value / from[index]!), 1);
}

/** The same if a block may depend on some of the parameters alone: less and more than all together if one grows and another shrinks. */
export function growthRange(from: Point, to: Point): [least: number, most: number] {
  const ratios = to.map((value, index) => value / from[index]!);
  const [least, most] = [Math.min, Math.max].map((end) => ratios.reduce((product, ratio) => product * end(1, ratio), 1)) as [
    number,
    number,
  ];
  return least === 1 ? [most, most] : most === 1 ? [least, least] : [least, most];
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
