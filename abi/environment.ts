// Environment variables. A run hands the first list to its processes, and only a run sets them. Users set the others.
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
  child('stacks', 'Call stacks to record: `python` or `all`, and the least bytes of a request after a colon; not set: none.'),
  child('quiet', '1: print nothing but refusals that end the process.'),
  child('allowUntested', '1: accept versions of PyTorch that were not tested.'),
  child('accesses', 'Steps whose operators are recorded.'),
  child('plan', '1: the process will be given plans.'),
  child('swap', '`auto`, or bytes to swap down to.'),
  child('swapHost', 'Bytes of host memory that swapping may take.'),
  child('endAfter', 'End the process after so many steps; 0: steps are marked, and it goes to its end.'),
];

/**
 * The options of `weir run` that a process without a command around it has too: weir_gpu.enable() takes them by name, and WEIR=1 from
 * these variables. For `weir run` each is the twin of its option in the environment.
 */
export const OPTION_VARIABLES: readonly Variable[] = [
  option('allocator', 'The allocator to run on.'),
  option('limit', 'Memory that the process may hold on each GPU.'),
  option('record', 'File to keep a recording in.'),
  option('force', '1: overwrite existing recordings.'),
  option('oomDir', 'Folder for files about out-of-memory errors; `none`: write none.'),
  option('whatIf', '0: do not compare with other allocators.'),
  option('whatIfEvents', 'Most events to replay for that.'),
  option('metrics', "Port for live figures in Prometheus' format."),
  option('metricsHost', 'Address for them.'),
  option('serve', '1: serve a live page.'),
  option('servePort', 'Port for it; 0: a free one.'),
  option('plan', '1: plan the steps of the job.'),
  option('swap', '`auto`, or the size to swap down to.'),
  option('swapHost', 'Host memory for swapping.'),
  option('lend', '0: streams keep to their own memory.'),
  option('allowUntested', '1: accept versions of PyTorch that were not tested.'),
  option('ringRows', 'Events that may wait to be recorded, a power of two.'),
  option('stacks', 'Call stacks to record: off, large, large:SIZE, python, all.'),
  option('jsonFile', 'File for the summary as JSON.'),
  option('quiet', '1: print only problems and the URL of the page.'),
  option('verbose', '1: print more.'),
];

export const USER_VARIABLES: readonly Variable[] = [
  user('enable', 'WEIR', '1: put Weir in place at the end of `import torch`, without `weir run`.'),
  user('required', 'WEIR_REQUIRED', '1, with WEIR=1: end the process if that is refused.'),
  user('cacheDir', 'WEIR_CACHE_DIR', "Folder for the compiled adapter, instead of one in the user's cache."),
  user('swapTolerance', 'WEIR_SWAP_TOLERANCE', 'Percent of a step that swapping may cost under `--swap auto`, or `any`.'),
  user('swapDebug', 'WEIR_SWAP_DEBUG', '1: compare every tensor that is swapped in with what was swapped out.'),
  user('observe', 'WEIR_OBSERVE', '0: set no hooks that find out what memory holds, and which phase a step is in.'),
  user('faults', 'WEIR_FAULTS', 'RATE:SEED: driver calls in a million that fail on purpose; for tests.'),
  user('pythonDir', 'WEIR_PYTHON_DIR', 'Folder of the Python part, instead of the one in this package.'),
  user('nativeDir', 'WEIR_NATIVE', 'Folder of the native sources, instead of the one in this package.'),
];

/** Bytes of the smallest limit: no process can work with less. */
export const LEAST_LIMIT: number = 32 * 1024 * 1024;

/** Bytes of the requests that `--stacks large` is about: nearly all memory, in few requests. */
export const LARGE_REQUEST: number = 1024 * 1024;

/** Exit code of Weir's own failures around a command, as `env` and `timeout` use it. */
export const OWN_EXIT_CODE = 125;

function child(name: string, doc: string): Variable {
  return { name, doc, variable: `WEIR_CHILD_${name.replace(/([A-Z])/g, '_$1').toUpperCase()}` };
}

function option(name: string, doc: string): Variable {
  return { name, doc, variable: `WEIR_${name.replace(/([A-Z])/g, '_$1').toUpperCase()}` };
}

function user(name: string, variable: string, doc: string): Variable {
  return { name, doc, variable };
}
