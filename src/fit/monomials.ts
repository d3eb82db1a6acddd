// Products of parameters, such as batch * length^2, that the size of a block can be proportional to.
// A parameter may be padded to a tile first, as kernels do.
import { roundUp } from '../base/bytes.ts';

/** One number for each parameter of the command, such as batch and length. */
export type Point = readonly number[];

export interface Monomial {
  /** The power of each parameter. */
  readonly powers: readonly number[];
  /** What each parameter is rounded up to a multiple of first; 1: as it is. */
  readonly tiles: readonly number[];
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
    .map((powers) => ({ powers, tiles: powers.map(() => 1) }));
}

/** The same if some of the parameters in it are padded, the smallest tiles first. */
export function tiledMonomials(parameters: number): readonly Monomial[] {
  const plain = plainMonomials(parameters);
  return TILES.flatMap((tile) => plain.flatMap(({ powers }) => paddings(powers, tile).map((tiles) => ({ powers, tiles }))));
}

/** The tile for every choice of the parameters that occur, except none. */
function paddings(powers: readonly number[], tile: number): number[][] {
  let all: number[][] = [[]];
  for (const power of powers)
    all = all.flatMap((tiles) =>
      power === 0
        ? [[...tiles, 1]]
        : [
            [...tiles, tile],
            [...tiles, 1],
          ],
    );
  return all.filter((tiles) => tiles.includes(tile));
}

export function degreeOf(powers: readonly number[]): number {
  return powers.reduce((sum, power) => sum + power, 0);
}

export function valueAt({ powers, tiles }: Monomial, point: Point): number {
  let product = 1;
  for (let index = 0; index < powers.length; index++) {
    const value = tiles[index] === 1 ? point[index]! : roundUp(point[index]!, tiles[index]!);
    for (let power = 0; power < powers[index]!; power++) product *= value;
  }
  return product;
}

/** `batch * length^2`, with the names of the parameters. */
export function formatMonomial({ powers, tiles }: Monomial, names: readonly string[]): string {
  const factors = powers.flatMap((power, index) => {
    if (power === 0) return [];
    const name = tiles[index] === 1 ? names[index]! : `pad${tiles[index]}(${names[index]!})`;
    return [power === 1 ? name : `${name}^${power}`];
  });
  return factors.join(' * ') || '1';
}
