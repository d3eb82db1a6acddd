// Which function the sizes of one block in a few runs allow, and how wide the interval is where several do.
import { describe, expect, test } from 'vitest';
import { formatMonomial } from '../../src/fit/monomials.ts';
import { SizeLearner } from '../../src/fit/size-function.ts';

function learn(...samples: [value: number, size: number][]) {
  return new SizeLearner(1).learn(samples.map(([value, size]) => ({ point: [value], size })));
}

describe('one parameter', () => {
  test.each([
    {
      samples: [
        [4, 100],
        [8, 100],
      ],
      at: 1000,
      size: 100,
      kind: 'constant',
    },
    {
      samples: [
        [4, 12],
        [8, 24],
      ],
      at: 7,
      size: 21,
      kind: 'proportional',
    },
    {
      samples: [
        [4, 48],
        [8, 192],
      ],
      at: 100,
      size: 30000,
      kind: 'proportional',
    },
    // Half a byte for each: the exact ratio is kept.
    {
      samples: [
        [4, 2],
        [6, 3],
      ],
      at: 10,
      size: 5,
      kind: 'proportional',
    },
    {
      samples: [
        [3, 800],
        [4, 800],
        [10, 1600],
      ],
      at: 17,
      size: 2400,
      kind: 'proportional',
    },
    {
      samples: [
        [4, 140],
        [8, 180],
        [12, 220],
      ],
      at: 100,
      size: 1100,
      kind: 'sum',
    },
    {
      samples: [
        [2, 14],
        [4, 44],
        [6, 90],
      ],
      at: 10,
      size: 230,
      kind: 'sum',
    },
  ] as const)('$samples at $at', ({ samples, at, size, kind }) => {
    const found = learn(...(samples as unknown as [number, number][]));
    expect([found.kind, found.lower([at]), found.upper([at])]).toEqual([kind, size, size]);
  });

  test('sizes beyond 2^53 as a product stay exact', () => {
    const unit = 3_000_000_001;
    const found = learn([1024, unit * 1024 ** 2], [2048, unit * 2048 ** 2]);
    expect(found.upper([1025])).toBe(unit * 1025 ** 2);
  });

  test('two runs with a summand allow a line, a parabola, and what is slower than a line', () => {
    const found = learn([4, 140], [8, 188]);
    expect(found.isChecked).toBe(false);
    expect(found.lower([16])).toBe(Math.ceil((188 * 188) / 140));
    expect(found.upper([16])).toBe(380);
  });

  // Each pair of sizes has a sum of whole coefficients that may not be the truth.
  test.each([
    ['broken coefficients', (value: number) => Math.ceil(1000.3 * value + 100.7 * value * value)],
    ['fractions', (value: number) => (15 * value * (value + 1)) / 2],
    ['a tile', (value: number) => 4096 * Math.ceil(value / 4)],
    ['a rounding', (value: number) => Math.ceil((value * 500_000) / 2 ** 21) * 2 ** 21],
    ['a fractional power', (value: number) => Math.ceil(5000 * value ** 1.5)],
  ])('two runs of %s allow the truth', (_, real) => {
    for (const [a, b] of [
      [4, 8],
      [4, 6],
      [6, 8],
    ] as const) {
      if (real(a) === real(b)) continue;
      const found = learn([a, real(a)], [b, real(b)]);
      expect(found.lower([48])).toBeLessThanOrEqual(real(48));
      expect(found.upper([48])).toBeGreaterThanOrEqual(real(48));
    }
  });

  test('what grows faster and faster outgrows the power seen so far', () => {
    const real = (value: number) => Math.ceil(100_000.3 * value + 3001.7 * value * value);
    const found = learn([4, real(4)], [6, real(6)], [8, real(8)]);
    expect(found.kind).toBe('open');
    for (const value of [16, 32, 64]) expect(found.upper([value])).toBeGreaterThanOrEqual(real(value));
  });

  test('a padded size that may as well be rounded is an interval with both', () => {
    const real = (value: number) => Math.ceil((value * 300_000) / 2 ** 21) * 2 ** 21;
    const found = learn([2, real(2)], [4, real(4)], [8, real(8)]);
    expect(found.isChecked).toBe(false);
    expect(found.lower([32])).toBeLessThanOrEqual(real(32));
    expect(found.upper([32])).toBe(2 ** 21 * 8);
  });

  test('a size that falls faster than the value is no sum with a negative part', () => {
    const found = learn([4, 10], [8, 30]);
    expect(found.kind).toBe('open');
    expect(found.lower([1])).toBeGreaterThan(0);
  });

  // Language models shift their logits by one.
  test.each([
    ['one less', (value: number) => 201_216 * (value - 1)],
    ['a triangle', (value: number) => 16 * value * (value - 1)],
    ['some less', (value: number) => 4096 * value - 1000],
  ])('three runs settle a difference: %s', (_, real) => {
    const found = learn([128, real(128)], [256, real(256)], [512, real(512)]);
    expect([found.kind, found.isChecked, found.lower([4096]), found.upper([4096])]).toEqual(['sum', true, real(4096), real(4096)]);
    expect(found.lower([1])).toBeGreaterThan(0);
    const fromTwo = learn([2, real(2)], [4, real(4)]);
    expect(fromTwo.lower([64])).toBeLessThanOrEqual(real(64));
    expect(fromTwo.upper([64])).toBeGreaterThanOrEqual(real(64));
  });

  test('a line that is also padded is an interval with both', () => {
    const found = learn([3, 7 * 8], [10, 7 * 16], [17, 7 * 24]);
    expect([found.lower([1]), found.upper([1])]).toEqual([40, 56]);
  });

  test('a rounded size is an interval of one unit', () => {
    const real = (value: number) => Math.ceil((value * 1_000_003) / 65536) * 65536;
    const found = learn([4, real(4)], [9, real(9)], [15, real(15)]);
    expect(found.kind).toBe('rounded');
    for (const value of [5, 20, 30]) {
      expect(found.lower([value])).toBeLessThanOrEqual(real(value));
      expect(found.upper([value])).toBeGreaterThanOrEqual(real(value));
    }
  });

  test('no function: from the smallest seen to a growth with the value', () => {
    const found = learn([4, 1000], [8, 300], [16, 700]);
    expect(found.kind).toBe('open');
    expect([found.lower([32]), found.upper([32])]).toEqual([300, 2000]);
  });
});

test('two parameters', () => {
  const learner = new SizeLearner(2);
  const points = [
    [2, 16],
    [4, 16],
    [2, 32],
    [4, 32],
  ];
  const of = (size: (batch: number, length: number) => number) =>
    learner.learn(points.map(([batch, length]) => ({ point: [batch!, length!], size: size(batch!, length!) })));
  const attention = of((batch, length) => 6 * batch * length * length);
  expect(formatMonomial(attention.monomial!, ['batch', 'length'])).toBe('batch * length^2');
  expect(attention.upper([5, 100])).toBe(300_000);
  // Of runs in which both grew together, nobody knows which of them it was.
  const together = learner.learn([
    { point: [2, 16], size: 200 },
    { point: [4, 32], size: 400 },
  ]);
  expect([together.lower([8, 32]), together.upper([8, 32])]).toEqual([400, 800]);
  const mixed = of((batch, length) => 10 * batch * length + 3 * length);
  expect([mixed.lower([7, 50]), mixed.upper([7, 50])]).toEqual([3650, 3650]);
});

test('one of two parameters is padded', () => {
  const real = (batch: number, length: number) => batch * 64 * Math.ceil(length / 64) * 100;
  const points = [
    [2, 128],
    [3, 160],
    [4, 256],
    [6, 224],
  ] as const;
  const found = new SizeLearner(2).learn(points.map((point) => ({ point, size: real(point[0], point[1]) })));
  expect(formatMonomial(found.monomial!, ['batch', 'length'])).toBe('batch * pad64(length)');
  expect([found.lower([5, 777]), found.upper([5, 777])]).toEqual([real(5, 777), real(5, 777)]);
});

test('what may depend on the batch alone grows with it, also if the length shrinks', () => {
  // Odd enough to be no function.
  const sizes: Record<number, number> = { 2: 1001, 3: 1700, 4: 2113 };
  const points = [
    [2, 16],
    [3, 16],
    [2, 32],
    [4, 32],
  ] as const;
  const found = new SizeLearner(2).learn(points.map((point) => ({ point, size: sizes[point[0]]! })));
  expect(found.kind).toBe('open');
  expect(found.upper([16, 8])).toBeGreaterThanOrEqual(4 * 2113);
  expect(found.lower([16, 8])).toBeLessThanOrEqual(1001);
  // If both grow, nothing grows faster than all together.
  expect(found.upper([8, 64])).toBeLessThan(20 * 2113);
});

test('two lengths leave open whether a size grows with the square, unless it is of one length less', () => {
  const points = [
    [4, 512],
    [8, 512],
    [4, 1024],
    [8, 1024],
  ] as const;
  const learner = new SizeLearner(2);
  const of = (size: (batch: number, length: number) => number) => {
    const found = learner.learn(points.map((point) => ({ point, size: size(point[0], point[1]) })));
    return [found.lower([8, 8192]), found.upper([8, 8192])];
  };
  const shifted = (batch: number, length: number) => batch * (length - 1) * 50_304 * 4;
  expect(of(shifted)).toEqual([shifted(8, 8192), shifted(8, 8192)]);
  const mixed = (batch: number, length: number) => batch * length * 1024 + batch * length * length * 32;
  // The same four sizes, without a square.
  const line = (batch: number, length: number) => batch * length * (1024 + 1536 * 32) - batch * 512 * 1024 * 32;
  expect(of(mixed)).toEqual([line(8, 8192), mixed(8, 8192)]);
});
