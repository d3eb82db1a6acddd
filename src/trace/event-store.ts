// Growable event columns that readers append to. One store holds all GPUs of a file; a trace is a range of its rows.
import { type ColumnMemory, doubles, integers, octets, ownMemory } from '../base/columns.ts';
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
  private readonly memory: ColumnMemory;
  private readonly optional: { [column in OptionalColumn]?: Int32Array } = {};

  /** `expected` may be far too high: pages of a column that are never written cost nothing. */
  constructor(expected = 1024, memory: ColumnMemory = ownMemory) {
    this.memory = memory;
    const capacity = Math.max(16, Math.ceil(expected));
    this.kind = octets(memory, capacity);
    this.address = doubles(memory, capacity);
    this.size = doubles(memory, capacity);
    this.timeUs = doubles(memory, capacity);
    this.stream = integers(memory, capacity);
    this.pool = integers(memory, capacity);
    this.stack = integers(memory, capacity);
    this.metadata = integers(memory, capacity);
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
      values = integers(this.memory, this.kind.length);
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
    const { memory } = this;
    const capacity = this.kind.length * 2;
    this.kind = copied(octets(memory, capacity), this.kind);
    this.address = copied(doubles(memory, capacity), this.address);
    this.size = copied(doubles(memory, capacity), this.size);
    this.timeUs = copied(doubles(memory, capacity), this.timeUs);
    this.stream = copied(integers(memory, capacity), this.stream);
    this.pool = copied(integers(memory, capacity), this.pool);
    this.stack = copied(integers(memory, capacity), this.stack);
    this.metadata = copied(integers(memory, capacity), this.metadata);
    for (const column of ['detail', 'thread', 'compileContext'] as const) {
      const values = this.optional[column];
      if (values) this.optional[column] = copied(integers(memory, capacity), values);
    }
  }
}

function copied<Column extends Uint8Array | Float64Array | Int32Array>(into: Column, from: Column): Column {
  into.set(from as never);
  return into;
}
