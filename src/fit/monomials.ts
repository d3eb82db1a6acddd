// Products of parameters, such as batch * length^2, that the size of a block can be proportional to.
// A parameter may be padded to a tile first, as kernels do.
import { roundUp } from '../base/bytes.ts';

/** One number for each parameter of the command, such as batch and length. */
export type Point = readonly number[];

export interface Monomial {
  /** The power of each parameter. */
  readonly powers: readonly number[];
  /** Each parameter is rounded up to a multiple of this first; 1: as it is. */
  readonly tile: number;
}

const MOST_POWER = 2;
const MOST_DEGREE = 3;
/** Kernels pad to powers of two. */
const TILES: readonly number[] = [2, 4, 8, 16, 32, 64, 128, 256, 512];

/** All products of so many parameters, the simplest first, without the constant. */
export function plainMonomials(parameters: number): readonly Monomial[] {
  let all: number[][] = [[]];
  for (let index = 0; index < parameters; index++) {
    all = all.flatMap((powers) => Array.from({ length: MOST_POWER + 1 }, (_, power) => [...powers, power]));
  }
  return all
    .filter((powers) => degreeOf(powers) > 0 && degreeOf(powers) <= MOST_DEGREE)
    .sort((a, b) => degreeOf(a) - degreeOf(b) || Math.max(...a) - Math.max(...b))
    .map((powers) => ({ powers, tile: 1 }));
}

/** The same of padded parameters, the smallest tiles first. */
export function tiledMonomials(parameters: number): readonly Monomial[] {
  const plain = plainMonomials(parameters);
  return TILES.flatMap((tile) => plain.map((monomial) => ({ ...monomial, tile })));
}

export function degreeOf(powers: readonly number[]): number {
  return powers.reduce((sum, power) => sum + power, 0);
}

export function valueAt({ powers, tile }: Monomial, point: Point): number {
  let product = 1;
  for (let index = 0; index < powers.length; index++) {
    const value = tile === 1 ? point[index]! : roundUp(point[index]!, tile);
    for (let power = 0; power < powers[index]!; power++) product *= value;
  }
  return product;
}

/** `batch * length^2`, with the names of the parameters. */
export function formatMonomial({ powers, tile }: Monomial, names: readonly string[]): string {
  const factors = powers.flatMap((power, index) => {
    if (power === 0) return [];
    const name = tile === 1 ? names[index]! : `pad${tile}(${names[index]!})`;
    return [power === 1 ? name : `${name}^${power}`];
  });
  return factors.join(' * ') || '1';
}
