// The environment of the processes of a run. Variables that the user has set are extended, never replaced.
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { RunAllocator } from '../../abi/allocators.ts';
import { ChildVariable, UserVariable } from '../../abi/environment.ts';
import { CONF_VARIABLES, EXPANDABLE_CONF } from '../../abi/pytorch.ts';
import type { SettingValue } from '../../trace/trace.ts';
import { jobPython } from './job-python.ts';
import { RunError } from './run-error.ts';

export interface EnvironmentOptions {
  readonly command: readonly string[];
  readonly allocator: RunAllocator;
  /** Most bytes that a process may hold on each GPU. */
  readonly limit: number | undefined;
  readonly folder: string;
  readonly lend: boolean;
  readonly plan: boolean;
  /** Bytes to swap down to. `auto`: as low as costs hardly any time. */
  readonly swap: number | 'auto' | undefined;
  /** Most bytes of host memory to use for swapping. */
  readonly swapHost: number | undefined;
  readonly allowUntested: boolean;
  readonly ringRows: number;
  /** Steps whose operators are recorded. */
  readonly accesses?: number | undefined;
  /** Value of the variable; undefined for no call stacks. */
  readonly stacks: string | undefined;
  readonly quiet: boolean;
  readonly endAfter?: number | undefined;
}

/** The variables that change, with their new values. */
export function changedVariables(given: NodeJS.ProcessEnv, options: EnvironmentOptions): Record<string, string> {
  const python = partOf(given, 'python', UserVariable.pythonDir);
  const changed: Record<string, string> = {
    PYTHONPATH: given['PYTHONPATH'] ? `${python}${delimiter}${given['PYTHONPATH']}` : python,
    [ChildVariable.allocator]: options.allocator,
    [ChildVariable.runDir]: options.folder,
    [ChildVariable.required]: '1',
    [ChildVariable.native]: partOf(given, 'native', UserVariable.nativeDir),
    [ChildVariable.lend]: options.lend ? '1' : '0',
    [ChildVariable.allowUntested]: options.allowUntested ? '1' : '0',
    [ChildVariable.ringRows]: String(options.ringRows),
    [ChildVariable.quiet]: options.quiet ? '1' : '0',
  };
  const prefix = jobPython(options.command, given);
  if (prefix !== undefined) changed[ChildVariable.python] = prefix;
  if (options.stacks !== undefined) changed[ChildVariable.stacks] = options.stacks;
  if (options.plan) changed[ChildVariable.plan] = '1';
  if (options.swap !== undefined) changed[ChildVariable.swap] = String(options.swap);
  if (options.swapHost !== undefined) changed[ChildVariable.swapHost] = String(options.swapHost);
  if (options.endAfter !== undefined) changed[ChildVariable.endAfter] = String(options.endAfter);
  if (options.accesses !== undefined) changed[ChildVariable.accesses] = String(options.accesses);
  if (options.limit !== undefined) changed[ChildVariable.limit] = String(options.limit);
  if (options.allocator === 'expandable') {
    for (const name of CONF_VARIABLES) {
      const conf = given[name] ?? CONF_VARIABLES.map((other) => given[other]).find((value) => value) ?? '';
      changed[name] = conf.trim() === '' ? EXPANDABLE_CONF : `${conf},${EXPANDABLE_CONF}`;
    }
  }
  return changed;
}

/** The environment without any run of ours, for the runs on PyTorch's allocator that a check compares with. */
export function withoutWeir(given: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const environment = { ...given };
  for (const name of [...Object.values(ChildVariable), UserVariable.enable]) delete environment[name];
  return environment;
}

/** The environment of the processes. Nothing of an outer run is left over. */
export function environmentWith(given: NodeJS.ProcessEnv, changed: Readonly<Record<string, string>>): NodeJS.ProcessEnv {
  return { ...withoutWeir(given), ...changed };
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
