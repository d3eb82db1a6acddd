// Messages of a run: on stderr only, each line marked, since all other output belongs to the command.
import type { RunVoice } from '../run/supervision.ts';
import { createProgress, type Progress } from './progress.ts';

const MARK = 'weir: ';

export function createVoice(how: { isQuiet: boolean; isVerbose: boolean; isSilent: boolean }): RunVoice {
  // Created at the first wait: the progress line appears some time after its creation.
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
    // With --json a program reads stderr, and problems are in the JSON.
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
