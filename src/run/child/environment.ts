// The environment of the processes of a run. Variables that the user has set are extended, never replaced.
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { SettingValue } from '../../trace/trace.ts';
import { RunError } from './run-error.ts';

export const RUN_ALLOCATORS = ['weir', 'gmlake', 'pytorch', 'expandable'] as const;
export type RunAllocator = (typeof RUN_ALLOCATORS)[number];

export interface EnvironmentOptions {
  readonly allocator: RunAllocator;
  /** Most bytes that a process may hold on each GPU. */
  readonly limit: number | undefined;
  readonly folder: string;
  readonly lend: boolean;
  /** Bytes to swap down to. `auto`: as low as costs hardly any time. */
  readonly swap: number | 'auto' | undefined;
  /** Most bytes of host memory to use for swapping. */
  readonly swapHost: number | undefined;
  readonly allowUntested: boolean;
  readonly ringRows: number;
  readonly quiet: boolean;
}

const EXPANDABLE = 'expandable_segments:True';
/** PyTorch 2.9 renamed the variable. Each version reads its own. */
const CONF_VARIABLES = ['PYTORCH_CUDA_ALLOC_CONF', 'PYTORCH_ALLOC_CONF'] as const;

/** The variables that change, with their new values. */
export function changedVariables(given: NodeJS.ProcessEnv, options: EnvironmentOptions): Record<string, string> {
  const python = partOf(given, 'python', 'WEIR_PYTHON_DIR');
  const changed: Record<string, string> = {
    PYTHONPATH: given['PYTHONPATH'] ? `${python}${delimiter}${given['PYTHONPATH']}` : python,
    WEIR_ALLOCATOR: options.allocator,
    WEIR_RUN_DIR: options.folder,
    WEIR_REQUIRED: '1',
    WEIR_NATIVE: partOf(given, 'native', 'WEIR_NATIVE'),
    WEIR_LEND: options.lend ? '1' : '0',
    WEIR_ALLOW_UNTESTED: options.allowUntested ? '1' : '0',
    WEIR_RING_ROWS: String(options.ringRows),
    WEIR_QUIET: options.quiet ? '1' : '0',
  };
  if (options.swap !== undefined) changed['WEIR_SWAP'] = String(options.swap);
  if (options.swapHost !== undefined) changed['WEIR_SWAP_HOST'] = String(options.swapHost);
  if (options.limit !== undefined) changed['WEIR_LIMIT'] = String(options.limit);
  if (options.allocator === 'expandable') {
    for (const name of CONF_VARIABLES) {
      const conf = given[name] ?? CONF_VARIABLES.map((other) => given[other]).find((value) => value) ?? '';
      changed[name] = conf.trim() === '' ? EXPANDABLE : `${conf},${EXPANDABLE}`;
    }
  }
  return changed;
}

/** Set only if their flag was given. A value left over from an outer run must not apply. */
const OPTIONAL_VARIABLES = ['WEIR_SWAP', 'WEIR_SWAP_HOST', 'WEIR_LIMIT'] as const;

/** The environment without any run of ours, for the runs on PyTorch's allocator that a check compares with. */
export function withoutWeir(given: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const environment = { ...given };
  for (const name of [...OPTIONAL_VARIABLES, 'WEIR_ALLOCATOR', 'WEIR_RUN_DIR', 'WEIR_REQUIRED']) delete environment[name];
  return environment;
}

/** The environment of the processes. */
export function environmentWith(given: NodeJS.ProcessEnv, changed: Readonly<Record<string, string>>): NodeJS.ProcessEnv {
  const environment = { ...given, ...changed };
  for (const name of OPTIONAL_VARIABLES) if (!(name in changed)) delete environment[name];
  return environment;
}

/** Allocator settings of the processes, by PyTorch's names, as far as the environment has them. */
export function settingsOf(environment: NodeJS.ProcessEnv): ReadonlyMap<string, SettingValue> {
  const conf = CONF_VARIABLES.map((name) => environment[name]).find((value) => value);
  return conf ? new Map([['PYTORCH_CUDA_ALLOC_CONF', conf]]) : new Map();
}

/** The reason why Weir cannot be loaded into any process; undefined if it can. */
export function obstacleIn(environment: NodeJS.ProcessEnv): string | undefined {
  if (environment['TORCH_DEVICE_BACKEND_AUTOLOAD'] === '0')
    return 'TORCH_DEVICE_BACKEND_AUTOLOAD=0 is set, so PyTorch would not load Weir; unset it and run again';
  return undefined;
}

/** Path of a part of the package that processes load. In a built package it is beside this code. */
function partOf(given: NodeJS.ProcessEnv, name: 'python' | 'native', variable: string): string {
  const path = given[variable] || join(fileURLToPath(new URL('../..', import.meta.url)), name);
  if (!existsSync(path)) throw new RunError(`this installation of weir is incomplete: ${path} is missing; install weir again`);
  return path;
}
