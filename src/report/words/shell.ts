// Commands and lines of Python that users copy: each is written down here once.

/** One word of a shell command, quoted if it needs to be. */
export function shellWord(text: string): string {
  return /^[\w./%+=:,@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

export const START_RECORDING = 'torch.cuda.memory._record_memory_history(max_entries=5_000_000)';
/** Recordings with call stacks: by Weir, or by PyTorch itself. */
export const RECORD_STACKS: readonly string[] = [
  'weir record --stacks=python -- COMMAND',
  'torch.cuda.memory._record_memory_history(stacks="python", max_entries=5_000_000)',
];
export const DUMP_SNAPSHOT = 'torch.cuda.memory._dump_snapshot("snapshot.pickle")';
