// Growable event columns that readers append to. One store holds all GPUs of a file; a trace is a range of its rows.
import type { EventColumns, EventKind } from './trace.ts';

type OptionalColumn = 'detail' | 'thread' | 'compileContext';

export class EventStore {
  count = 0;
  private kind: Uint8Array;
  private address: Float64Array;
  private size: Float64Array;
  private timeUs: Float64Array;
  private stream: Int32Array;
  private pool: Int32Array;
  private stack: Int32Array;
  private metadata: Int32Array;
  private readonly optional: { [column in OptionalColumn]?: Int32Array } = {};

  /** `expected` may be far too high: pages of a column that are never written cost nothing. */
  constructor(expected = 1024) {
    const capacity = Math.max(16, Math.ceil(expected));
    this.kind = new Uint8Array(capacity);
    this.address = new Float64Array(capacity);
    this.size = new Float64Array(capacity);
    this.timeUs = new Float64Array(capacity);
    this.stream = new Int32Array(capacity);
    this.pool = new Int32Array(capacity);
    this.stack = new Int32Array(capacity);
    this.metadata = new Int32Array(capacity);
  }

  /** Appends an event and returns its row. */
  append(
    kind: EventKind,
    address: number,
    size: number,
    timeUs: number,
    stream: number,
    pool: number,
    stack: number,
    metadata: number,
  ): number {
    const row = this.count;
    if (row === this.kind.length) this.grow();
    this.kind[row] = kind;
    this.address[row] = address;
    this.size[row] = size;
    this.timeUs[row] = timeUs;
    this.stream[row] = stream;
    this.pool[row] = pool;
    this.stack[row] = stack;
    this.metadata[row] = metadata;
    this.count = row + 1;
    return row;
  }

  /** Sets a field that most recordings lack. The first value creates its column. */
  setOptional(row: number, column: OptionalColumn, value: number): void {
    let values = this.optional[column];
    if (!values) {
      values = new Int32Array(this.kind.length);
      this.optional[column] = values;
    }
    values[row] = value;
  }

  /** Rows `from` to `to`, sharing memory with the store. */
  view(from = 0, to: number = this.count): EventColumns {
    const { detail, thread, compileContext } = this.optional;
    return {
      count: to - from,
      kind: this.kind.subarray(from, to),
      address: this.address.subarray(from, to),
      size: this.size.subarray(from, to),
      timeUs: this.timeUs.subarray(from, to),
      stream: this.stream.subarray(from, to),
      pool: this.pool.subarray(from, to),
      stack: this.stack.subarray(from, to),
      metadata: this.metadata.subarray(from, to),
      detail: detail?.subarray(from, to),
      thread: thread?.subarray(from, to),
      compileContext: compileContext?.subarray(from, to),
    };
  }

  private grow(): void {
    const capacity = this.kind.length * 2;
    this.kind = copied(new Uint8Array(capacity), this.kind);
    this.address = copied(new Float64Array(capacity), this.address);
    this.size = copied(new Float64Array(capacity), this.size);
    this.timeUs = copied(new Float64Array(capacity), this.timeUs);
    this.stream = copied(new Int32Array(capacity), this.stream);
    this.pool = copied(new Int32Array(capacity), this.pool);
    this.stack = copied(new Int32Array(capacity), this.stack);
    this.metadata = copied(new Int32Array(capacity), this.metadata);
    for (const column of ['detail', 'thread', 'compileContext'] as const) {
      const values = this.optional[column];
      if (values) this.optional[column] = copied(new Int32Array(capacity), values);
    }
  }
}

function copied<Column extends Uint8Array | Float64Array | Int32Array>(into: Column, from: Column): Column {
  into.set(from as never);
  return into;
}
