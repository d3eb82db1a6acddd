// Text is cut at its tokens (JSON) or at its cells and lines (CSV, traces). Mutations put other words into them.
import { type Format, joined, type Mutation, replaced } from '../mutate.ts';
import type { Random } from '../random.ts';

const encoder = new TextEncoder();
const decoder = new TextDecoder();

const NUMBERS = [
  '0',
  '-0',
  '1',
  '-1',
  '1.5',
  '255',
  '65536',
  '2147483647',
  '2147483648',
  '4294967295',
  '4294967296',
  '9007199254740991',
  '9007199254740992',
  '9007199254740993',
  '18446744073709551615',
  '18446744073709551616',
  '-9223372036854775809',
  '1e308',
  '-1e308',
  '1e-320',
  `1${'0'.repeat(400)}`,
];
const JSON_WORDS = [
  ...NUMBERS,
  '1e999',
  '-1e999',
  'NaN',
  'null',
  'true',
  '[]',
  '{}',
  '""',
  '"x"',
  '"__proto__"',
  '"constructor"',
  '"\\ud800"',
  '"\\u0000"',
  '"alloc"',
  '"free_completed"',
  '{"toString":1,"valueOf":1}',
  '{"__proto__":null}',
  '{"length":3}',
  '[[],[],[]]',
  '[null,null]',
];
const CELL_WORDS = [
  ...NUMBERS,
  'NaN',
  'Infinity',
  '-Infinity',
  '1e999',
  '0x10',
  '0xffffffffffffffffffff',
  '1_000',
  '',
  ' ',
  '\t',
  '"1"',
  '1n',
  'x',
  'constructor',
  '__proto__',
  'toString',
  '10-20',
  '20-10',
  '0-9007199254740993',
  '5-5',
  '1-2@3:4',
  'Malloc',
  'Free',
  'Read',
  '-1',
  '2',
  'id',
  'size',
  'upper',
  'end',
  'lower',
  'gaps',
  '\u2028',
  '\ufeff',
  '\0',
];

export const JSON_TEXT: Format = {
  cuts: jsonCuts,
  mutations: [putWord(JSON_WORDS), changeValue, changeValue, changeValue, nest, lengthen],
};

export const CELLS: Format = { cuts: cellCuts, mutations: [putWord(CELL_WORDS), putWord(CELL_WORDS), repeatLines, lengthen] };

/** Puts a word in place of a token, but not of a separator. */
function putWord(words: readonly string[]): Mutation {
  return ({ bytes, cuts }, random) => {
    const word = encoder.encode(random.pick(words));
    for (let tries = 0; tries < 8; tries++) {
      const index = random.below(cuts.length);
      if (!isSeparator(bytes[cuts[index]!]!)) return replaced(bytes, cuts, index, word);
    }
    return replaced(bytes, cuts, random.below(cuts.length), word);
  };
}

const VALUES: readonly unknown[] = [...NUMBERS.map(Number).filter(Number.isFinite), null, true, '', 'x', [], {}, [[]], [null, 1]];

/** Changes a value and leaves the text valid JSON: another value, a value from elsewhere, one more, one less, or two exchanged. */
function changeValue(subject: Parameters<Mutation>[0], random: Random): Uint8Array {
  let root: unknown;
  try {
    root = JSON.parse(decoder.decode(subject.bytes));
  } catch {
    return putWord(JSON_WORDS)(subject, random, []);
  }
  const places = placesIn(root, random);
  if (places.length === 0) return subject.bytes;
  const { holder, key } = random.pick(places);
  const other = random.pick(places);
  switch (random.below(6)) {
    case 0:
      if (Array.isArray(holder)) holder.splice(Number(key), 1);
      else delete holder[key];
      break;
    case 1:
      if (Array.isArray(holder))
        holder.splice(Number(key), 0, ...Array.from({ length: random.pick([1, 1, 30]) }, () => holder[key as never]));
      else holder[`${key}2`] = holder[key];
      break;
    case 2:
      [holder[key as never], other.holder[other.key as never]] = [other.holder[other.key as never], holder[key as never]];
      break;
    case 3:
      if (typeof holder[key as never] === 'number') {
        holder[key as never] = ((holder[key as never] as number) + random.pick([1, -1, 0.5, 512, -512])) as never;
        break;
      }
      holder[key as never] = random.pick(VALUES) as never;
      break;
    default:
      holder[key as never] = random.pick(VALUES) as never;
  }
  try {
    return encoder.encode(JSON.stringify(root));
  } catch {
    // A value put into itself has no text.
    return subject.bytes;
  }
}

type Holder = unknown[] & Record<string, unknown>;

/** Some of the places of a value: every list and object on a random way down. */
function placesIn(root: unknown, random: Random): { holder: Holder; key: string }[] {
  const places: { holder: Holder; key: string }[] = [];
  let holder = root;
  while (typeof holder === 'object' && holder !== null) {
    const keys = Object.keys(holder);
    if (keys.length === 0) break;
    const key = random.pick(keys);
    places.push({ holder: holder as Holder, key }, { holder: holder as Holder, key: random.pick(keys) });
    holder = (holder as Holder)[key as never];
  }
  return places;
}

/** Wraps a token in lists or objects, sometimes deeper than any stack. */
function nest({ bytes, cuts }: Parameters<Mutation>[0], random: Random): Uint8Array {
  const index = random.below(cuts.length);
  const depth = random.chance(0.02) ? 20_000 : random.pick([1, 1, 2, 50]);
  const [open, close] = random.pick([
    ['[', ']'],
    ['{"a":', '}'],
  ] as const);
  const inner = bytes.subarray(cuts[index]!, cuts[index + 1] ?? bytes.length);
  const from = encoder.encode(open.repeat(depth > 1000 ? depth / open.length : depth));
  return replaced(bytes, cuts, index, joined(from, inner, encoder.encode(close.repeat(depth))));
}

/** Makes one token long. */
function lengthen({ bytes, cuts }: Parameters<Mutation>[0], random: Random): Uint8Array {
  const index = random.below(cuts.length);
  const inner = bytes.subarray(cuts[index]!, cuts[index + 1] ?? bytes.length);
  const times = Math.min(random.pick([2, 10, 1000]), Math.floor(20_000 / Math.max(1, inner.length)));
  return replaced(bytes, cuts, index, joined(...Array.from({ length: times }, () => inner)));
}

/** Repeats the lines from one on: a run that repeats its step. */
function repeatLines({ bytes, cuts }: Parameters<Mutation>[0], random: Random): Uint8Array {
  const lines = cuts.filter((cut) => bytes[cut - 1] === 0x0a);
  if (lines.length === 0) return bytes;
  const from = random.pick(lines);
  const times = Math.min(random.pick([1, 3, 40]), Math.floor(20_000 / (bytes.length - from + 1)));
  return joined(bytes, ...Array.from({ length: times }, () => bytes.subarray(from)));
}

function jsonCuts(bytes: Uint8Array): number[] {
  const cuts: number[] = [];
  for (let at = 0; at < bytes.length; ) {
    cuts.push(at);
    const byte = bytes[at++]!;
    if (byte === 0x22) {
      while (at < bytes.length && bytes[at] !== 0x22) at += bytes[at] === 0x5c ? 2 : 1;
      at++;
    } else if (isWordByte(byte)) while (at < bytes.length && isWordByte(bytes[at]!)) at++;
  }
  return cuts;
}

function cellCuts(bytes: Uint8Array): number[] {
  const cuts: number[] = [];
  for (let at = 0; at < bytes.length; ) {
    cuts.push(at);
    if (!isSeparator(bytes[at++]!)) while (at < bytes.length && !isSeparator(bytes[at]!)) at++;
  }
  return cuts;
}

/** Comma, colon, white space and brackets. */
function isSeparator(byte: number): boolean {
  return byte === 0x2c || byte === 0x3a || byte <= 0x20 || byte === 0x5b || byte === 0x5d || byte === 0x7b || byte === 0x7d;
}

/** Digits, letters, signs and the decimal point. */
function isWordByte(byte: number): boolean {
  return (byte >= 0x30 && byte <= 0x39) || (byte >= 0x61 && byte <= 0x7a) || byte === 0x2d || byte === 0x2e || byte === 0x2b;
}
