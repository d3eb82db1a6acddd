// `--pytorch`: what the user knows of the PyTorch behind a recording counts more than what the recording says.
import { VERSION_SETTING } from '../allocator/pytorch/versions.ts';
import type { Recording, Trace } from '../trace/trace.ts';

export function withVersion(traces: readonly Trace[], version: string | undefined): readonly Trace[] {
  if (version === undefined) return traces;
  return traces.map((trace) => ({ ...trace, settings: new Map([...trace.settings, [VERSION_SETTING, version]]) }));
}

export function recordingWithVersion(recording: Recording, version: string | undefined): Recording {
  return { ...recording, traces: withVersion(recording.traces, version) };
}
