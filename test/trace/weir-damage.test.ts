import { describe, expect, it } from 'vitest';
import { InputError } from '../../src/base/errors.ts';
import type { Recording } from '../../src/trace/trace.ts';
import { FILE_HEADER_BYTES, RecordType } from '../../src/trace/weir/format.ts';
import { recordsOf, viewOf } from '../../src/trace/weir/framing.ts';
import { readWeir } from '../../src/trace/weir/reader.ts';
import { contentOf, expectPrefix, smallRecording, weirBytes } from './weir-support.ts';

const WHOLE = weirBytes(smallRecording());
const HEADS = [...recordsOf(viewOf(WHOLE), WHOLE.length)];
const DEVICE_DECLARED = HEADS.find((head) => head.type === RecordType.Device)!.next;
const END = HEADS.at(-1)!;

function codesOf(recording: Recording): string[] {
  return recording.traces.flatMap((trace) => trace.warnings.map((warning) => warning.code));
}

function outcomeOf(bytes: Uint8Array): Recording | InputError {
  try {
    return readWeir(bytes);
  } catch (error) {
    if (error instanceof InputError) return error;
    throw error;
  }
}

describe('a .weir file that was cut off', () => {
  it('opens up to its last whole record, wherever it was cut', () => {
    for (let length = 0; length < WHOLE.length; length++) {
      const outcome = outcomeOf(WHOLE.slice(0, length));
      if (outcome instanceof InputError) {
        expect(length).toBeLessThan(DEVICE_DECLARED);
        continue;
      }
      const atBoundary = HEADS.some((head) => head.next === length);
      expect(codesOf(outcome)).toContain(atBoundary ? 'unfinished' : 'truncated');
      expectPrefix(outcome, smallRecording());
      const wholeEvents = HEADS.filter((head) => head.type === RecordType.Events && head.next <= length);
      expect(outcome.traces[0]!.events.count).toBe(wholeEvents.length > 0 ? 6 : 0);
    }
  });

  it('says how much of it was read', () => {
    const outcome = readWeir(WHOLE.slice(0, END.offset + 5));
    const warning = outcome.traces[0]!.warnings.find(({ code }) => code === 'truncated')!;
    expect(warning.message).toBe(
      `the file ends within a record, at byte ${END.offset} of ${END.offset + 5}: the 6 events before that were read`,
    );
  });

  it('is not taken for a damaged one when the file system left zeros at its end', () => {
    for (const offset of [END.offset, HEADS.at(-2)!.offset]) {
      const bytes = new Uint8Array(WHOLE.length + 4096);
      bytes.set(WHOLE.subarray(0, offset));
      expect(codesOf(readWeir(bytes))).toEqual(['truncated']);
    }
  });

  it('is told from one whose writer was killed between two records', () => {
    expect(codesOf(readWeir(WHOLE.slice(0, END.offset)))).toEqual(['unfinished']);
    expect(codesOf(readWeir(WHOLE))).toEqual([]);
  });

  it('does not use half a state', () => {
    const state = HEADS.find((head) => head.type === RecordType.State)!;
    expect(readWeir(WHOLE.slice(0, state.next - 8)).traces[0]!.endSegments).toBeUndefined();
    expect(readWeir(WHOLE.slice(0, state.next)).traces[0]!.endSegments).toBeDefined();
  });
});

describe('a .weir file with a flipped bit', () => {
  it('never gives wrong data: it is refused, or read up to the damage with a warning', () => {
    for (let bit = 0; bit < WHOLE.length * 8; bit++) {
      const bytes = WHOLE.slice();
      bytes[bit >> 3]! ^= 1 << (bit & 7);
      const outcome = outcomeOf(bytes);
      if (outcome instanceof InputError) {
        expect(bit >> 3).toBeLessThan(DEVICE_DECLARED);
        continue;
      }
      expect(bit >> 3).toBeGreaterThanOrEqual(FILE_HEADER_BYTES);
      expect(codesOf(outcome).some((code) => code === 'truncated' || code === 'corrupt')).toBe(true);
      expectPrefix(outcome, smallRecording());
    }
  });

  it('is called corrupt where more follows, and truncated at the end', () => {
    const events = HEADS.find((head) => head.type === RecordType.Events)!;
    const damaged = WHOLE.slice();
    damaged[events.payload + 30]! ^= 4;
    const outcome = readWeir(damaged);
    expect(codesOf(outcome)).toEqual(['corrupt', 'no-demand']);
    expect(outcome.traces[0]!.warnings[0]!.message).toContain(`damaged at byte ${events.offset} of ${WHOLE.length}`);
    const lastDamaged = WHOLE.slice();
    lastDamaged[END.payload]! ^= 1;
    expect(codesOf(readWeir(lastDamaged))).toEqual(['truncated']);
  });
});

describe('a .weir file that lost or gained something', () => {
  it('is read up to where a record is missing, twice there or out of order', () => {
    const pieces = [WHOLE.slice(0, FILE_HEADER_BYTES), ...HEADS.map((head) => WHOLE.slice(head.offset, head.next))];
    for (let index = 3; index < pieces.length - 1; index++) {
      const without = joined(pieces.toSpliced(index, 1));
      const doubled = joined(pieces.toSpliced(index, 0, pieces[index]!));
      for (const bytes of [without, doubled]) {
        const outcome = readWeir(bytes);
        expect(codesOf(outcome).some((code) => code === 'corrupt' || code === 'truncated')).toBe(true);
        expectPrefix(outcome, smallRecording());
      }
    }
  });

  it('is read whole when bytes follow its end, and says so', () => {
    const outcome = readWeir(joined([WHOLE, Uint8Array.of(1, 2, 3)]));
    expect(codesOf(outcome)).toEqual(['trailing']);
    const [trace] = outcome.traces;
    expect(contentOf({ format: 'weir', traces: [{ ...trace!, warnings: [] }] })).toEqual(contentOf(smallRecording()));
  });
});

function joined(pieces: readonly Uint8Array[]): Uint8Array {
  return new Uint8Array(Buffer.concat(pieces));
}
