// What PyTorch's versions decide differently, as far as a replay can see it.
import { UsageError } from '../../base/errors.ts';
import type { SettingValue } from '../../trace/trace.ts';

export interface PyTorchRules {
  /** The versions that decide so, in words. */
  readonly versions: string;
  /** The first minor version that decides so. */
  readonly since: number;
  /**
   * Which of several free blocks of one size is taken: the one at the lowest address, the one that was made first, or the
   * one in the oldest segment.
   */
  readonly takesFirst: 'lowest address' | 'oldest block' | 'oldest segment';
  /** Whether a request in a MemPool that finds no memory gets the cache of the default pool given back. Inside a capture none does. */
  readonly retriesInMemPools: boolean;
  /** Bytes that a memory fraction allows. */
  readonly allows: (fraction: number, deviceBytes: number) => number;
}

const truncated = (fraction: number, deviceBytes: number) => Math.floor(fraction * deviceBytes);
const rounded = (fraction: number, deviceBytes: number) => Math.round(fraction * deviceBytes);

/** From old to new. */
export const PYTORCH_RULES: readonly [PyTorchRules, ...PyTorchRules[]] = [
  { versions: '2.4 to 2.11', since: 4, takesFirst: 'lowest address', retriesInMemPools: false, allows: truncated },
  { versions: '2.12', since: 12, takesFirst: 'oldest block', retriesInMemPools: false, allows: truncated },
  { versions: '2.13 and later', since: 13, takesFirst: 'oldest segment', retriesInMemPools: true, allows: rounded },
];

export const DEFAULT_RULES: PyTorchRules = PYTORCH_RULES[0];

/** The key of the version among the settings of a recording. */
export const VERSION_SETTING = 'torch';

/** The rules of a version such as `2.13`, `2.13.1` or `2.14.0+cu130`; undefined: it is none. */
function rulesOfVersion(version: string): PyTorchRules | undefined {
  const minor = /^2\.(\d+)(?:\.\d+)?(?:[a-z+].*)?$/.exec(version)?.[1];
  return minor === undefined ? undefined : (PYTORCH_RULES.findLast(({ since }) => since <= Number(minor)) ?? DEFAULT_RULES);
}

/** The rules of the version that a recording names; undefined: it names none. */
export function recordedRules(settings: ReadonlyMap<string, SettingValue>): PyTorchRules | undefined {
  const version = settings.get(VERSION_SETTING);
  return typeof version === 'string' ? rulesOfVersion(version) : undefined;
}

/** Refuses what is no version of PyTorch. */
export function parseVersion(text: string): string {
  if (!rulesOfVersion(text)) throw new UsageError(`'${text}' is not a version of PyTorch that weir knows; use 2.4 to 2.14, like 2.13`);
  return text;
}
