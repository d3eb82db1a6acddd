// Environment variables. A run hands the first list to its processes, and only a run sets them.
// Their names differ from those of all options, so that a run inside a run does not take them for options.
import type { Entry } from './table.ts';

export interface Variable extends Entry {
  readonly variable: string;
}

export const CHILD_VARIABLES: readonly Variable[] = [
  child('allocator', 'The allocator to put in place. Without it nothing of ours happens in a process.'),
  child('runDir', "The run's folder, for rings, plans and profiles."),
  child('required', "1: end the process if the allocator cannot be put in place and the process runs the job's Python."),
  child('python', 'Folder (`sys.prefix`) of the Python that the command starts, if the command says.'),
  child('native', 'Folder with the sources of the compiled part.'),
  child('lend', '0: streams keep to their own memory.'),
  child('limit', 'Bytes that the process may hold on each GPU.'),
  child('ringRows', 'Events that may wait to be recorded, a power of two.'),
  child('quiet', '1: print nothing but refusals that end the process.'),
  child('allowUntested', '1: accept versions of PyTorch that were not tested.'),
  child('swap', '`auto`, or bytes to swap down to.'),
  child('swapHost', 'Bytes of host memory that swapping may take.'),
];

export const USER_VARIABLES: readonly Variable[] = [
  user('cacheDir', 'WEIR_CACHE_DIR', "Folder for the compiled adapter, instead of one in the user's cache."),
  user('swapTolerance', 'WEIR_SWAP_TOLERANCE', 'Percent of a step that swapping may cost under `--swap auto`, or `any`.'),
  user('swapDebug', 'WEIR_SWAP_DEBUG', '1: compare every tensor that is swapped in with what was swapped out.'),
  user('faults', 'WEIR_FAULTS', 'RATE:SEED: driver calls in a million that fail on purpose; for tests.'),
  user('pythonDir', 'WEIR_PYTHON_DIR', 'Folder of the Python part, instead of the one in this package.'),
  user('nativeDir', 'WEIR_NATIVE', 'Folder of the native sources, instead of the one in this package.'),
];

/** Exit code of Weir's own failures around a command, as `env` and `timeout` use it. */
export const OWN_EXIT_CODE = 125;

function child(name: string, doc: string): Variable {
  return { name, doc, variable: `WEIR_CHILD_${name.replace(/([A-Z])/g, '_$1').toUpperCase()}` };
}

function user(name: string, variable: string, doc: string): Variable {
  return { name, doc, variable };
}
