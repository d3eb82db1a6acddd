// The last events of a process as raw rows. Those that leave the window go to `onLeave`, each once and in order.
import { EVENT_BYTES } from '../../trace/weir/format.ts';

export class EventWindow {
  private readonly most: number;
  private readonly onLeave: (view: DataView, at: number) => void;
  private readonly bytes: Buffer;
  private readonly view: DataView;
  private first = 0;
  private count = 0;

  constructor(most: number, onLeave: (view: DataView, at: number) => void) {
    this.most = most;
    this.onLeave = onLeave;
    this.bytes = Buffer.alloc(most * EVENT_BYTES);
    this.view = new DataView(this.bytes.buffer, this.bytes.byteOffset, this.bytes.length);
  }

  /** Adds rows `from` to `to`, as byte offsets of the buffer that `view` is of. */
  push(rows: Buffer, view: DataView, from: number, to: number): void {
    const { most } = this;
    const added = (to - from) / EVENT_BYTES;
    const leaving = Math.min(this.count, Math.max(0, this.count + added - most));
    for (let left = 0; left < leaving; left++) {
      this.onLeave(this.view, this.first * EVENT_BYTES);
      this.first = this.first + 1 === most ? 0 : this.first + 1;
    }
    this.count -= leaving;
    // More rows than fit pass through.
    const kept = Math.max(from, to - most * EVENT_BYTES);
    for (let at = from; at < kept; at += EVENT_BYTES) this.onLeave(view, at);
    for (let at = kept; at < to; ) {
      const place = (this.first + this.count) % most;
      const bytes = Math.min(to - at, (most - place) * EVENT_BYTES);
      rows.copy(this.bytes, place * EVENT_BYTES, at, at + bytes);
      this.count += bytes / EVENT_BYTES;
      at += bytes;
    }
  }

  /** A copy of the rows without the last ones, oldest first. */
  copy(withoutLast = 0): Buffer {
    const { bytes, first, most } = this;
    const count = this.count - withoutLast;
    const end = Math.min(most, first + count);
    return Buffer.concat([bytes.subarray(first * EVENT_BYTES, end * EVENT_BYTES), bytes.subarray(0, (first + count - end) * EVENT_BYTES)]);
  }
}
