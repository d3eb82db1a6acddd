// Dicts and lists that are not rows, in one arena of typed arrays.
// A hostile file can consist of nothing else, so each takes a few dozen bytes instead of an object.
import { InputError } from '../../base/errors.ts';
import { Tag } from './values.ts';

/** A range of events is stored as `first row * RANGE_BASE + length`, which stays below 2^53 for 2^31 rows. */
const RANGE_BASE = 2 ** 21;

/** A snapshot has a few per segment. This many would take half a gigabyte. */
const MAX_CONTAINERS = 2 ** 23;

/** The list has not been used as a call stack yet: see `freeze`. */
export const NOT_FROZEN = -2;

export class Containers {
  private itemTags = new Uint8Array(1024);
  private itemValues = new Float64Array(1024);
  private itemCount = 0;
  /** Three numbers per chunk: first item, number of items, next chunk or -1. */
  private chunks = new Int32Array(3 * 256);
  private chunkCount = 0;
  /** Four numbers per container: first chunk, last chunk, number of items, call stack it was frozen as. */
  private headers = new Int32Array(4 * 256);
  private count = 0;

  /** Rows that are in a list or dict: events in the order of their rows, so that none counts twice. */
  listedEvents = 0;
  listedObjects = 0;
  private nextEvent = 0;

  /** Bytes that the arrays take. */
  get held(): number {
    return this.itemCount * 9 + this.chunkCount * 12 + this.count * 16;
  }

  create(): number {
    const container = this.count++;
    if (container >= MAX_CONTAINERS)
      throw new InputError('the file has more dicts and lists than any memory snapshot: it is damaged or something else');
    if (this.headers.length < this.count * 4) this.headers = doubled(this.headers);
    this.headers.set([-1, -1, 0, NOT_FROZEN], container * 4);
    return container;
  }

  size(container: number): number {
    return this.headers[container * 4 + 2]!;
  }

  /** Adds one item. Consecutive event rows are stored as one range, skipped events not at all. */
  append(container: number, tag: number, value: number): void {
    const { headers } = this;
    if (tag === Tag.SkippedEvent) return;
    const tail = headers[container * 4 + 1]!;
    if (tag === Tag.Segment || tag === Tag.Block || tag === Tag.Annotation) this.listedObjects++;
    if (tag === Tag.Event) {
      if (value >= this.nextEvent) {
        this.listedEvents++;
        this.nextEvent = value + 1;
      }
      if (tail >= 0) {
        const last = this.chunks[tail * 3]! + this.chunks[tail * 3 + 1]! - 1;
        const range = this.itemValues[last]!;
        if (
          this.itemTags[last] === Tag.EventRange &&
          rangeStart(range) + rangeLength(range) === value &&
          rangeLength(range) < RANGE_BASE - 1
        ) {
          this.itemValues[last] = range + 1;
          return;
        }
      }
      this.addItem(container, tail, Tag.EventRange, value * RANGE_BASE + 1);
      return;
    }
    this.addItem(container, tail, tag, value);
  }

  /** Calls `visit` for each item in order until it returns false. */
  forEach(container: number, visit: (tag: number, value: number) => boolean | undefined): void {
    for (let chunk = this.headers[container * 4]!; chunk >= 0; chunk = this.chunks[chunk * 3 + 2]!) {
      const from = this.chunks[chunk * 3]!;
      const to = from + this.chunks[chunk * 3 + 1]!;
      for (let item = from; item < to; item++) {
        if (visit(this.itemTags[item]!, this.itemValues[item]!) === false) return;
      }
    }
  }

  /** Calls `visit` for each entry with the string id of its key (-1 if the key is not a string) and its value. */
  forEachEntry(container: number, visit: (key: number, tag: number, value: number) => void): void {
    let key = -1;
    let isKey = true;
    this.forEach(container, (tag, value) => {
      if (isKey) key = tag === Tag.String ? value : -1;
      else visit(key, tag, value);
      isKey = !isKey;
      return true;
    });
  }

  /** Fixes a list of frames that is used as a call stack. It must not grow afterwards. */
  freeze(container: number, stack: number): void {
    this.headers[container * 4 + 3] = stack;
  }

  frozenStack(container: number): number {
    return this.headers[container * 4 + 3]!;
  }

  private addItem(container: number, tail: number, tag: number, value: number): void {
    if (this.itemCount === this.itemTags.length) this.growItems();
    const item = this.itemCount++;
    this.itemTags[item] = tag;
    this.itemValues[item] = value;
    this.headers[container * 4 + 2]!++;
    if (tail >= 0 && this.chunks[tail * 3]! + this.chunks[tail * 3 + 1]! === item) this.chunks[tail * 3 + 1]!++;
    else this.addChunk(container, tail, item);
  }

  private addChunk(container: number, tail: number, item: number): void {
    const chunk = this.chunkCount++;
    if (this.chunks.length < this.chunkCount * 3) this.chunks = doubled(this.chunks);
    this.chunks.set([item, 1, -1], chunk * 3);
    if (tail >= 0) this.chunks[tail * 3 + 2] = chunk;
    else this.headers[container * 4] = chunk;
    this.headers[container * 4 + 1] = chunk;
  }

  private growItems(): void {
    const { itemTags, itemValues } = this;
    this.itemTags = new Uint8Array(itemTags.length * 2);
    this.itemTags.set(itemTags);
    this.itemValues = new Float64Array(itemValues.length * 2);
    this.itemValues.set(itemValues);
  }
}

export function rangeStart(range: number): number {
  return Math.floor(range / RANGE_BASE);
}

export function rangeLength(range: number): number {
  return range % RANGE_BASE;
}

function doubled(numbers: Int32Array<ArrayBuffer>): Int32Array<ArrayBuffer> {
  const grown = new Int32Array(numbers.length * 2);
  grown.set(numbers);
  return grown;
}
