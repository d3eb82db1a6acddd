// A recording that was cut off before its first event.
import { InputError } from '../../src/base/errors.ts';
import { readRecording } from '../../src/trace/detect.ts';

/** The shortest beginning of a recording that still names its GPU. */
export function cutBeforeFirstEvent(bytes: Uint8Array): Uint8Array {
  for (let length = 16; length < bytes.length; length += 8) {
    try {
      if (readRecording(bytes.subarray(0, length)).traces.length > 0) return bytes.subarray(0, length);
    } catch (error) {
      if (!(error instanceof InputError)) throw error;
    }
  }
  throw new Error('no beginning can be read');
}
