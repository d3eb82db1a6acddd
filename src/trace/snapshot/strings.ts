// Strings of the input, stored once per distinct byte sequence and decoded only on demand.
// Every trace entry repeats a few strings in full, so recognising one must cost no more than hashing it.
import { InputError } from '../../base/errors.ts';
import type { Symbols } from '../symbols.ts';

/** Most hash collisions examined before a string is stored a second time. It bounds the cost of any input. */
const MAX_PROBES = 32;

export class StringTable {
  private readonly bytes: Uint8Array;
  private readonly symbols: Symbols;
  private readonly known: Uint8Array;
  private readonly knownCount: number;
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

  /** `known` names get the ids 0, 1, ... so that callers can switch on them. */
  constructor(bytes: Uint8Array, known: readonly string[], symbols: Symbols) {
    this.bytes = bytes;
    this.symbols = symbols;
    this.known = new TextEncoder().encode(known.join(''));
    this.knownCount = known.length;
    let offset = 0;
    for (const name of known) {
      this.knownByText.set(name, this.add(offset, name.length, hashOf(this.known, offset, name.length)));
      offset += name.length;
    }
  }

  /** The id of the `length` bytes at `offset`. The caller has checked that they lie inside the input. */
  intern(offset: number, length: number): number {
    const { bytes } = this;
    const hash = hashOf(bytes, offset, length);
    const mask = this.slots.length - 1;
    let slot = hash & mask;
    for (let probe = 0; probe < MAX_PROBES; probe++) {
      const id = this.slots[slot]!;
      if (id < 0) break;
      if (this.hashes[id] === hash && this.lengths[id] === length && this.matches(id, offset, length)) return id;
      slot = (slot + 1) & mask;
    }
    return this.add(offset, length, hash);
  }

  /** As `intern`, for the inside of a JSON string with escapes. */
  internEscaped(offset: number, length: number): number {
    // The key includes the quote, so it never equals the bytes of a string without escapes.
    const raw = this.intern(offset - 1, length + 1);
    const alias = this.aliases.get(raw);
    if (alias !== undefined) return alias;
    let text: string;
    try {
      text = JSON.parse(`"${this.decoder.decode(this.bytes.subarray(offset, offset + length))}"`) as string;
    } catch {
      throw new InputError(`the JSON is damaged: the text at byte ${offset} has an invalid escape`);
    }
    const id = this.knownByText.get(text) ?? raw;
    this.aliases.set(raw, id);
    if (id === raw) this.unescaped.set(raw, text);
    return id;
  }

  text(id: number): string {
    const unescaped = this.unescaped.get(id);
    if (unescaped !== undefined) return unescaped;
    const from = id < this.knownCount ? this.known : this.bytes;
    const offset = this.offsets[id]!;
    return this.decoder.decode(from.subarray(offset, offset + this.lengths[id]!));
  }

  /** The string's index into `symbols.strings`. */
  symbol(id: number): number {
    const stored = this.symbolOf[id]!;
    if (stored > 0) return stored - 1;
    const symbol = this.symbols.internString(this.text(id));
    this.symbolOf[id] = symbol + 1;
    return symbol;
  }

  private matches(id: number, offset: number, length: number): boolean {
    const { bytes } = this;
    const from = id < this.knownCount ? this.known : bytes;
    const start = this.offsets[id]!;
    for (let at = 0; at < length; at++) {
      if (from[start + at] !== bytes[offset + at]) return false;
    }
    return true;
  }

  private add(offset: number, length: number, hash: number): number {
    const id = this.count++;
    if (id === this.offsets.length) this.grow();
    this.offsets[id] = offset;
    this.lengths[id] = length;
    this.hashes[id] = hash;
    if (this.count * 2 > this.slots.length) this.rehash();
    else this.place(id);
    return id;
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
