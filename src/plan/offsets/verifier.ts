// Checks a layout against its buffers. It deliberately shares no code with the planners.
// One sweep over time keeps the live buffers by offset and compares each new one with its two neighbours.
import type { Buffer, Layout } from './buffers.ts';

export interface Fault {
  /** One sentence, for people. */
  readonly message: string;
}

/** The faults of a layout, at most `limit`. An empty list means that the layout can be used. */
export function verifyOffsets(buffers: readonly Buffer[], layout: Layout, limit = 10): Fault[] {
  const faults: Fault[] = [];
  const report = (message: string) => {
    if (faults.length < limit) faults.push({ message });
  };
  const { offsets, footprint } = layout;
  if (offsets.length !== buffers.length) {
    report(`the layout has ${offsets.length} offsets for ${buffers.length} buffers`);
    return faults;
  }
  buffers.forEach((buffer, index) => {
    const offset = offsets[index]!;
    if (!Number.isSafeInteger(offset) || offset < 0) report(`buffer ${buffer.id} has the invalid offset ${offset}`);
    else if (offset % buffer.alignment !== 0) report(`buffer ${buffer.id} at ${offset} is not aligned to ${buffer.alignment}`);
    if (buffer.fixedOffset !== undefined && buffer.fixedOffset !== offset)
      report(`buffer ${buffer.id} must be at ${buffer.fixedOffset} but is at ${offset}`);
    if (offset + buffer.size > footprint)
      report(`buffer ${buffer.id} ends at ${offset + buffer.size}, above the footprint of ${footprint}`);
  });
  if (faults.length === 0) sweep(buffers, offsets, report);
  return faults;
}

function sweep(buffers: readonly Buffer[], offsets: Float64Array, report: (message: string) => void): void {
  const moments: { time: number; begins: boolean; buffer: number }[] = [];
  buffers.forEach((buffer, index) => {
    for (const span of buffer.spans) {
      moments.push({ time: span.from, begins: true, buffer: index }, { time: span.to, begins: false, buffer: index });
    }
  });
  moments.sort((a, b) => a.time - b.time || Number(a.begins) - Number(b.begins));

  const live: number[] = [];
  // As long as live buffers do not overlap, a new one can overlap only its neighbours in offset order.
  const placeOf = (offset: number) => {
    let low = 0;
    let high = live.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (offsets[live[middle]!]! < offset) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  for (const { time, begins, buffer } of moments) {
    const at = placeOf(offsets[buffer]!);
    if (!begins) {
      const place = live[at] === buffer ? at : live.indexOf(buffer);
      if (place >= 0) live.splice(place, 1);
      continue;
    }
    const below = live[at - 1];
    const above = live[at];
    const overlapped =
      below !== undefined && offsets[below]! + buffers[below]!.size > offsets[buffer]!
        ? below
        : above !== undefined && offsets[buffer]! + buffers[buffer]!.size > offsets[above]!
          ? above
          : undefined;
    if (overlapped === undefined) live.splice(at, 0, buffer);
    else {
      report(
        `at time ${time} buffers ${buffers[overlapped]!.id} [${offsets[overlapped]}, ${offsets[overlapped]! + buffers[overlapped]!.size}) and ` +
          `${buffers[buffer]!.id} [${offsets[buffer]}, ${offsets[buffer]! + buffers[buffer]!.size}) share bytes`,
      );
    }
  }
}
