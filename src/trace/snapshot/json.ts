// Decodes a snapshot in JSON, byte by byte, into the same rows as the pickle decoder.
// JSON.parse would need the file as one string and an object per event, and would round large addresses.
import { InputError } from '../../base/errors.ts';
import type { Rows } from './rows.ts';
import { MAX_TEXT_BYTES, type SnapshotDecoder, Tag } from './values.ts';

/** List items held before they are handed to the rows. */
const BATCH = 1000;

const SPACE = 0x20;
const QUOTE = 0x22;
const COMMA = 0x2c;
const MINUS = 0x2d;
const ZERO = 0x30;
const NINE = 0x39;
const COLON = 0x3a;
const OPEN_LIST = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_LIST = 0x5d;
const OPEN_DICT = 0x7b;
const CLOSE_DICT = 0x7d;

const LITERALS: readonly (readonly [string, number, number])[] = [
  ['true', Tag.Bool, 1],
  ['false', Tag.Bool, 0],
  ['null', Tag.None, 0],
  // Not valid JSON, but Python writes them.
  ['NaN', Tag.Number, Number.NaN],
  ['Infinity', Tag.Number, Number.POSITIVE_INFINITY],
  ['-Infinity', Tag.Number, Number.NEGATIVE_INFINITY],
];

/** The longest number is a double of Python's, with 24 characters. */
const MAX_NUMBER_BYTES = 2 ** 16;

/** What the decoder expects next. */
const Expect = { Value: 0, FirstItem: 1, FirstKey: 2, Key: 3, Colon: 4, AfterValue: 5, Nothing: 6 } as const;

/** A token that goes on in the next piece. */
const INCOMPLETE = -1;

/** Decodes JSON piece by piece, and leaves its one value in slot 0 of the stack. */
export class JsonDecoder implements SnapshotDecoder {
  readonly format = 'JSON';
  private readonly rows: Rows;
  /** The piece that is being decoded, its position in the file, and whether it is the last. */
  private bytes: Uint8Array = new Uint8Array(0);
  private base = 0;
  private isLast = false;
  private at = 0;
  private expect: number = Expect.Value;
  private depth = 0;
  /** Stack slots of the open containers, which replaces recursion. */
  private opened = new Int32Array(64);
  private openCount = 0;

  constructor(rows: Rows) {
    this.rows = rows;
  }

  get isDone(): boolean {
    return this.expect === Expect.Nothing;
  }

  get held(): number {
    return this.opened.length * 4;
  }

  get open(): number {
    return this.depth;
  }

  isCut(): boolean {
    return false;
  }

  decode(bytes: Uint8Array, base: number, isLast: boolean): number {
    this.bytes = bytes;
    this.base = base;
    this.isLast = isLast;
    this.at = base === 0 && bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0;
    for (;;) {
      while (this.at < bytes.length && bytes[this.at]! <= SPACE) this.at++;
      if (this.at >= bytes.length) return bytes.length;
      const start = this.at;
      if (this.step(bytes[start]!) === INCOMPLETE) return start;
    }
  }

  /** Decodes the token that begins with `next`, at `at`. */
  private step(next: number): number {
    switch (this.expect) {
      case Expect.FirstItem:
      case Expect.FirstKey:
        if (next === CLOSE_LIST || next === CLOSE_DICT) return this.close(next);
        return this.expect === Expect.FirstKey ? this.key(next) : this.value(next);
      case Expect.Value:
        return this.value(next);
      case Expect.Key:
        return this.key(next);
      case Expect.Colon:
        if (next !== COLON) throw this.damaged('a colon is missing');
        this.expect = Expect.Value;
        return ++this.at;
      case Expect.AfterValue:
        if (next === CLOSE_LIST || next === CLOSE_DICT) return this.close(next);
        if (next !== COMMA) throw this.damaged('a comma or a closing bracket is missing');
        return this.comma();
    }
    throw this.damaged('there is data after the end');
  }

  private value(next: number): number {
    if (next === OPEN_LIST || next === OPEN_DICT) {
      this.begin(next === OPEN_LIST ? Tag.List : Tag.Dict);
      this.expect = next === OPEN_LIST ? Expect.FirstItem : Expect.FirstKey;
      return ++this.at;
    }
    if (this.scalar(next) === INCOMPLETE) return INCOMPLETE;
    this.expect = this.openCount > 0 ? Expect.AfterValue : Expect.Nothing;
    return this.at;
  }

  private key(next: number): number {
    if (next !== QUOTE) throw this.damaged('a key is missing');
    if (this.text() === INCOMPLETE) return INCOMPLETE;
    this.expect = Expect.Colon;
    return this.at;
  }

  private comma(): number {
    const slot = this.opened[this.openCount - 1]!;
    this.at++;
    const inDict = this.inDict();
    if (!inDict && this.depth - slot > BATCH) {
      this.rows.append(slot, slot + 1, this.depth, this.base + this.at);
      this.depth = slot + 1;
    }
    this.expect = inDict ? Expect.Key : Expect.Value;
    return this.at;
  }

  private begin(tag: number): void {
    if (this.openCount === this.opened.length) {
      const grown = new Int32Array(this.opened.length * 2);
      grown.set(this.opened);
      this.opened = grown;
    }
    this.opened[this.openCount++] = this.depth;
    this.push(tag, 0);
  }

  private close(bracket: number): number {
    this.at++;
    const slot = this.opened[this.openCount - 1]!;
    if (this.inDict() !== (bracket === CLOSE_DICT)) throw this.damaged('brackets do not match');
    this.openCount--;
    if (bracket === CLOSE_DICT) this.rows.setItems(slot, slot + 1, this.depth, this.base + this.at);
    else this.rows.append(slot, slot + 1, this.depth, this.base + this.at);
    this.depth = slot + 1;
    this.expect = this.openCount > 0 ? Expect.AfterValue : Expect.Nothing;
    return this.at;
  }

  /** A list may be filled in part already. A dict stays a plain one until it closes. */
  private inDict(): boolean {
    return this.openCount > 0 && this.rows.stack.tags[this.opened[this.openCount - 1]!] === Tag.Dict;
  }

  private scalar(next: number): number {
    if (next === QUOTE) return this.text();
    if ((next >= ZERO && next <= NINE) || next === MINUS) return this.number();
    return this.literal();
  }

  private literal(): number {
    for (const [word, tag, value] of LITERALS) {
      let matched = 0;
      while (matched < word.length && this.bytes[this.at + matched] === word.charCodeAt(matched)) matched++;
      if (matched === word.length) {
        this.at += matched;
        return this.push(tag, value);
      }
      if (matched > 0 && this.at + matched === this.bytes.length) return INCOMPLETE;
    }
    throw this.damaged('a value is missing');
  }

  private text(): number {
    const { bytes } = this;
    const start = this.at + 1;
    const end = bytes.length;
    let escaped = false;
    let at = start;
    for (; at < end; at++) {
      const byte = bytes[at]!;
      if (byte === QUOTE) break;
      if (byte === BACKSLASH) {
        escaped = true;
        at++;
      }
    }
    if (at - start > MAX_TEXT_BYTES) throw this.damaged(`it has a text of more than ${MAX_TEXT_BYTES} bytes`);
    if (at >= end) return INCOMPLETE;
    this.at = at + 1;
    const { strings } = this.rows;
    return this.push(Tag.String, escaped ? strings.internEscaped(bytes, start, at - start) : strings.intern(bytes, start, at - start));
  }

  private number(): number {
    const { bytes } = this;
    const start = this.at;
    const negative = bytes[start] === MINUS;
    let at = negative ? start + 1 : start;
    let value = 0;
    for (; at < bytes.length; at++) {
      const digit = bytes[at]! - ZERO;
      if (digit < 0 || digit > 9) break;
      value = value * 10 + digit;
    }
    const digits = at - start - (negative ? 1 : 0);
    if (at === bytes.length && !this.isLast && digits <= MAX_NUMBER_BYTES) return INCOMPLETE;
    if (digits === 0) return this.literal();
    const next = bytes[at];
    if (next === 0x2e || next === 0x65 || next === 0x45) return this.fraction(start, at);
    if (value <= Number.MAX_SAFE_INTEGER) {
      this.at = at;
      return this.push(Tag.Number, negative ? -value : value);
    }
    if (digits > 40) throw this.damaged(`it has an integer of ${digits} digits`);
    this.at = at;
    return this.push(Tag.BigInt, this.rows.bigints.push(BigInt(this.slice(start, at))) - 1);
  }

  private fraction(start: number, from: number): number {
    let at = from;
    while (at < this.bytes.length && '+-.eE0123456789'.includes(String.fromCharCode(this.bytes[at]!))) at++;
    if (at === this.bytes.length && !this.isLast && at - start <= MAX_NUMBER_BYTES) return INCOMPLETE;
    const value = at - start > 400 ? Number.NaN : Number(this.slice(start, at));
    if (Number.isNaN(value)) throw this.damaged('a number is malformed');
    this.at = at;
    return this.push(Tag.Number, value);
  }

  private slice(from: number, to: number): string {
    return String.fromCharCode(...this.bytes.subarray(from, to));
  }

  private push(tag: number, value: number): number {
    const { stack } = this.rows;
    if (this.depth === stack.tags.length) stack.grow();
    stack.tags[this.depth] = tag;
    stack.values[this.depth++] = value;
    return this.at;
  }

  private damaged(why: string): InputError {
    return new InputError(`the JSON is damaged at byte ${this.base + this.at}: ${why}`);
  }
}
