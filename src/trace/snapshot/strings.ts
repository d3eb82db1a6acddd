// Strings of the input, stored once per distinct byte sequence and decoded only on demand.
// Every trace entry repeats a few strings in full, so recognising one must cost no more than hashing it.
import { InputError } from '../../base/errors.ts';
import type { Symbols } from '../symbols.ts';
import type { Worth } from '../worth.ts';

/** Most hash collisions examined before a string is stored a second time. It bounds the cost of any input. */
const MAX_PROBES = 32;

export class StringTable {
  private readonly symbols: Symbols;
  private readonly worth: Worth;
  /** The bytes of all strings, one after the other. */
  private texts = new Uint8Array(4096);
  private textBytes = 0;
  private readonly knownByText = new Map<string, number>();
  private readonly decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  private offsets = new Float64Array(1024);
  private lengths = new Uint32Array(1024);
  private hashes = new Int32Array(1024);
  /** Index into `symbols.strings`, plus one; 0 if it has none yet. */
  private symbolOf = new Int32Array(1024);
  private slots = new Int32Array(4096).fill(-1);
  private count = 0;
  /** Decoded text of JSON strings with escapes, by id. */
  private readonly unescaped = new Map<number, string>();
  private readonly aliases = new Map<number, number>();
  private unescapedBytes = 0;

  /** `known` names get the ids 0, 1, ... so that callers can switch on them. */
  constructor(known: readonly string[], symbols: Symbols, worth: Worth) {
    this.symbols = symbols;
    this.worth = worth;
    const encoder = new TextEncoder();
    for (const name of known) {
      const bytes = encoder.encode(name);
      this.knownByText.set(name, this.intern(bytes, 0, bytes.length));
    }
  }

  /** Bytes of memory that the strings take. */
  get held(): number {
    return this.textBytes + this.unescapedBytes + this.count * 20 + this.slots.length * 4 + this.aliases.size * 150;
  }

  /** The id of the `length` bytes at `offset`. The caller has checked that they lie inside the input. */
  intern(bytes: Uint8Array, offset: number, length: number): number {
    const hash = hashOf(bytes, offset, length);
    const mask = this.slots.length - 1;
    let slot = hash & mask;
    for (let probe = 0; probe < MAX_PROBES; probe++) {
      const id = this.slots[slot]!;
      if (id < 0) break;
      if (this.hashes[id] === hash && this.lengths[id] === length && this.matches(id, bytes, offset)) return id;
      slot = (slot + 1) & mask;
    }
    return this.add(bytes, offset, length, hash);
  }

  /** As `intern`, for the inside of a JSON string with escapes. */
  internEscaped(bytes: Uint8Array, offset: number, length: number): number {
    // The key includes the quote, so it never equals the bytes of a string without escapes.
    const raw = this.intern(bytes, offset - 1, length + 1);
    const alias = this.aliases.get(raw);
    if (alias !== undefined) return alias;
    let text: string;
    try {
      text = JSON.parse(`"${this.decoder.decode(bytes.subarray(offset, offset + length))}"`) as string;
    } catch {
      throw new InputError('the JSON is damaged: a text has an invalid escape');
    }
    const id = this.knownByText.get(text) ?? raw;
    this.aliases.set(raw, id);
    if (id === raw) {
      this.unescaped.set(raw, text);
      this.unescapedBytes += text.length * 2;
    }
    return id;
  }

  text(id: number): string {
    const unescaped = this.unescaped.get(id);
    if (unescaped !== undefined) return unescaped;
    const offset = this.offsets[id]!;
    return this.decoder.decode(this.texts.subarray(offset, offset + this.lengths[id]!));
  }

  /** The string's index into `symbols.strings`. */
  symbol(id: number): number {
    const stored = this.symbolOf[id]!;
    if (stored > 0) return stored - 1;
    const symbol = this.symbols.internString(this.text(id));
    this.symbolOf[id] = symbol + 1;
    this.worth.texts++;
    this.worth.textBytes += this.lengths[id]!;
    return symbol;
  }

  private matches(id: number, bytes: Uint8Array, offset: number): boolean {
    const { texts } = this;
    const start = this.offsets[id]!;
    const length = this.lengths[id]!;
    for (let at = 0; at < length; at++) {
      if (texts[start + at] !== bytes[offset + at]) return false;
    }
    return true;
  }

  private add(bytes: Uint8Array, offset: number, length: number, hash: number): number {
    const id = this.count++;
    if (id === this.offsets.length) this.grow();
    this.offsets[id] = this.keep(bytes, offset, length);
    this.lengths[id] = length;
    this.hashes[id] = hash;
    if (this.count * 2 > this.slots.length) this.rehash();
    else this.place(id);
    return id;
  }

  /** Copies the bytes: the piece of the file that they lie in is not kept. */
  private keep(bytes: Uint8Array, offset: number, length: number): number {
    const start = this.textBytes;
    if (start + length > this.texts.length) {
      const grown = new Uint8Array(Math.max(start + length, this.texts.length * 2));
      grown.set(this.texts);
      this.texts = grown;
    }
    this.texts.set(bytes.subarray(offset, offset + length), start);
    this.textBytes = start + length;
    return start;
  }

  private place(id: number): void {
    const mask = this.slots.length - 1;
    let slot = this.hashes[id]! & mask;
    for (let probe = 0; probe < MAX_PROBES; probe++) {
      if (this.slots[slot]! < 0) {
        this.slots[slot] = id;
        return;
      }
      slot = (slot + 1) & mask;
    }
  }

  private rehash(): void {
    this.slots = new Int32Array(this.slots.length * 2).fill(-1);
    for (let id = 0; id < this.count; id++) this.place(id);
  }

  private grow(): void {
    const capacity = this.offsets.length * 2;
    const { offsets, lengths, hashes, symbolOf } = this;
    this.offsets = new Float64Array(capacity);
    this.offsets.set(offsets);
    this.lengths = new Uint32Array(capacity);
    this.lengths.set(lengths);
    this.hashes = new Int32Array(capacity);
    this.hashes.set(hashes);
    this.symbolOf = new Int32Array(capacity);
    this.symbolOf.set(symbolOf);
  }
}

function hashOf(bytes: Uint8Array, offset: number, length: number): number {
  let hash = length;
  for (let at = offset; at < offset + length; at++) hash = Math.imul(hash ^ bytes[at]!, 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  return hash ^ (hash >>> 13);
}
