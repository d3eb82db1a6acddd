// Decodes a snapshot in JSON, byte by byte, into the same rows as the pickle decoder.
// JSON.parse would need the file as one string and an object per event, and would round large addresses.
import { InputError } from '../../base/errors.ts';
import { truncatedError } from './pickle.ts';
import type { Rows } from './rows.ts';
import { PROGRESS_STEP, Tag } from './values.ts';

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

/** Decodes the JSON text and leaves its one value in slot 0 of the stack. */
export function decodeJson(bytes: Uint8Array, rows: Rows, onProgress?: (fraction: number) => void): void {
  new JsonDecoder(bytes, rows).run(onProgress);
}

class JsonDecoder {
  private readonly bytes: Uint8Array;
  private readonly rows: Rows;
  private at = 0;
  private depth = 0;
  /** Stack slots of the open containers, which replaces recursion. */
  private open = new Int32Array(64);
  private openCount = 0;

  constructor(bytes: Uint8Array, rows: Rows) {
    this.bytes = bytes;
    this.rows = rows;
  }

  run(onProgress?: (fraction: number) => void): void {
    const { bytes } = this;
    let report = onProgress ? PROGRESS_STEP : Number.POSITIVE_INFINITY;
    if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) this.at = 3;
    let next = this.token();
    for (;;) {
      if (this.at >= report) {
        onProgress?.(this.at / bytes.length);
        report = this.at + PROGRESS_STEP;
      }
      // A value begins here. In a dict its key has been read.
      if (next === OPEN_LIST || next === OPEN_DICT) {
        this.at++;
        this.begin(next === OPEN_LIST ? Tag.List : Tag.Dict);
        next = this.token();
        if (next === CLOSE_LIST || next === CLOSE_DICT) this.at++;
        else {
          if (this.rows.stack.tags[this.open[this.openCount - 1]!] === Tag.Dict) next = this.key(next);
          continue;
        }
        this.close(next);
      } else this.scalar(next);
      if (!this.afterValue()) break;
      next = this.token();
      if (this.inDict()) next = this.key(next);
    }
    while (this.at < bytes.length) {
      if (bytes[this.at++]! > SPACE) throw this.damaged('there is data after the end');
    }
    onProgress?.(1);
  }

  /** Reads what follows a value. Returns whether another value begins, here or in an outer container. */
  private afterValue(): boolean {
    while (this.openCount > 0) {
      const next = this.token();
      this.at++;
      if (next === COMMA) {
        const slot = this.open[this.openCount - 1]!;
        if (!this.inDict() && this.depth - slot > BATCH) {
          this.rows.append(slot, slot + 1, this.depth, this.at);
          this.depth = slot + 1;
        }
        return true;
      }
      if (next !== CLOSE_LIST && next !== CLOSE_DICT) throw this.damaged('a comma or a closing bracket is missing');
      this.close(next);
    }
    return false;
  }

  private begin(tag: number): void {
    if (this.openCount === this.open.length) {
      const grown = new Int32Array(this.open.length * 2);
      grown.set(this.open);
      this.open = grown;
    }
    this.open[this.openCount++] = this.depth;
    this.push(tag, 0);
  }

  private close(bracket: number): void {
    const slot = this.open[this.openCount - 1]!;
    if (this.inDict() !== (bracket === CLOSE_DICT)) throw this.damaged('brackets do not match');
    this.openCount--;
    if (bracket === CLOSE_DICT) this.rows.setItems(slot, slot + 1, this.depth, this.at);
    else this.rows.append(slot, slot + 1, this.depth, this.at);
    this.depth = slot + 1;
  }

  /** A list may be filled in part already. A dict stays a plain one until it closes. */
  private inDict(): boolean {
    return this.openCount > 0 && this.rows.stack.tags[this.open[this.openCount - 1]!] === Tag.Dict;
  }

  private key(next: number): number {
    if (next !== QUOTE) throw this.damaged('a key is missing');
    this.text();
    if (this.token() !== COLON) throw this.damaged('a colon is missing');
    this.at++;
    return this.token();
  }

  private scalar(next: number): void {
    if (next === QUOTE) this.text();
    else if ((next >= ZERO && next <= NINE) || next === MINUS) this.number();
    else this.literal();
  }

  private literal(): void {
    for (const [word, tag, value] of LITERALS) {
      let matched = 0;
      while (matched < word.length && this.bytes[this.at + matched] === word.charCodeAt(matched)) matched++;
      if (matched === word.length) {
        this.at += matched;
        this.push(tag, value);
        return;
      }
      if (matched > 0 && this.at + matched === this.bytes.length) throw truncatedError('JSON', this.bytes.length);
    }
    throw this.damaged('a value is missing');
  }

  private text(): void {
    const { bytes } = this;
    const start = ++this.at;
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
    if (at >= end) throw truncatedError('JSON', end);
    this.at = at + 1;
    const { strings } = this.rows;
    this.push(Tag.String, escaped ? strings.internEscaped(start, at - start) : strings.intern(start, at - start));
  }

  private number(): void {
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
    if (digits === 0) {
      this.literal();
      return;
    }
    const next = bytes[at];
    if (next === 0x2e || next === 0x65 || next === 0x45) {
      this.fraction(start, at);
      return;
    }
    this.at = at;
    if (value <= Number.MAX_SAFE_INTEGER) this.push(Tag.Number, negative ? -value : value);
    else if (digits > 40) throw this.damaged(`it has an integer of ${digits} digits`);
    else this.push(Tag.BigInt, this.rows.bigints.push(BigInt(this.slice(start, at))) - 1);
  }

  private fraction(start: number, from: number): void {
    let at = from;
    while (at < this.bytes.length && '+-.eE0123456789'.includes(String.fromCharCode(this.bytes[at]!))) at++;
    this.at = at;
    const value = at - start > 400 ? Number.NaN : Number(this.slice(start, at));
    if (Number.isNaN(value)) throw this.damaged('a number is malformed');
    this.push(Tag.Number, value);
  }

  private slice(from: number, to: number): string {
    return String.fromCharCode(...this.bytes.subarray(from, to));
  }

  private push(tag: number, value: number): void {
    const { stack } = this.rows;
    if (this.depth === stack.tags.length) stack.grow();
    stack.tags[this.depth] = tag;
    stack.values[this.depth++] = value;
  }

  /** The next byte that is not white space. Does not consume it. */
  private token(): number {
    const { bytes } = this;
    while (this.at < bytes.length && bytes[this.at]! <= SPACE) this.at++;
    if (this.at >= bytes.length) throw truncatedError('JSON', bytes.length);
    return bytes[this.at]!;
  }

  private damaged(why: string): InputError {
    return new InputError(`the JSON is damaged at byte ${this.at}: ${why}`);
  }
}
