// The trail of the exact search: its changes in order, so that it can undo them.
// Flat arrays, because a search makes and undoes millions of changes.

/** The kind of a change. `Row` is a row of bits, stored apart. For the others the trail holds the old value. */
export const Change = { Placed: 0, Rest: 1, Least: 2, Blocked: 3, Witness: 4, Row: 5 } as const;
const KINDS = 8;

export class Trail {
  length = 0;
  /** The kind of the change that `pop` returned last. */
  kind = 0;
  index = 0;
  value = 0;
  private indexes: Int32Array;
  private values: Float64Array;
  private readonly words: number;
  private rows: Int32Array;
  private rowsEnd = 0;

  constructor(capacity: number, wordsPerRow: number) {
    this.indexes = new Int32Array(capacity);
    this.values = new Float64Array(capacity);
    this.words = wordsPerRow;
    this.rows = new Int32Array(64 * wordsPerRow);
  }

  push(kind: number, index: number, oldValue: number): void {
    if (this.length === this.indexes.length) this.grow();
    this.indexes[this.length] = index * KINDS + kind;
    this.values[this.length++] = oldValue;
  }

  /** Saves row `index` of `table`, in which rows are contiguous. */
  pushRow(index: number, table: Int32Array): void {
    const { words } = this;
    if (this.rowsEnd + words > this.rows.length) {
      const grown = new Int32Array(this.rows.length * 2 + words);
      grown.set(this.rows);
      this.rows = grown;
    }
    this.rows.set(table.subarray(index * words, (index + 1) * words), this.rowsEnd);
    this.rowsEnd += words;
    this.push(Change.Row, index, 0);
  }

  pop(): void {
    const entry = this.indexes[--this.length]!;
    this.kind = entry % KINDS;
    this.index = Math.floor(entry / KINDS);
    this.value = this.values[this.length]!;
  }

  /** Restores the row that `pop` returned last. */
  popRow(index: number, table: Int32Array): void {
    this.rowsEnd -= this.words;
    table.set(this.rows.subarray(this.rowsEnd, this.rowsEnd + this.words), index * this.words);
  }

  private grow(): void {
    const indexes = new Int32Array(this.indexes.length * 2);
    const values = new Float64Array(this.values.length * 2);
    indexes.set(this.indexes);
    values.set(this.values);
    this.indexes = indexes;
    this.values = values;
  }
}
