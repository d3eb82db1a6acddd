// How a run talks: on stderr alone, each line marked as ours, since the rest of the screen belongs to the command.
import type { RunVoice } from '../run/supervise.ts';
import { createProgress, type Progress } from './progress.ts';

const MARK = 'weir: ';

export function createVoice(how: { isQuiet: boolean; isVerbose: boolean; isSilent: boolean }): RunVoice {
  // Made when there is something to wait for: it shows itself only after a while.
  let progress: Progress | undefined;
  const write = (sentence: string) => {
    progress?.clear();
    process.stderr.write(`${MARK}${sentence}\n`);
  };
  return {
    say: (sentence) => {
      if (!how.isQuiet && !how.isSilent) write(sentence);
    },
    detail: (sentence) => {
      if (how.isVerbose && !how.isSilent) write(sentence);
    },
    // With --json a program reads our lines: there, trouble is in the JSON.
    trouble: (sentence) => {
      if (!how.isSilent) write(sentence);
    },
    progress: (fraction, doing) => {
      progress ??= createProgress(how.isQuiet || how.isSilent);
      progress.update(fraction, doing);
    },
    clearProgress: () => progress?.clear(),
  };
}
