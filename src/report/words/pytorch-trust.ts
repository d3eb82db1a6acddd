// How far Weir was tested with a version of PyTorch, in words: for `weir doctor`, the summary of a run and the documentation.
import { PYTORCH_TRUST, PYTORCH_VERSIONS, type PytorchTrust } from '../../abi/pytorch.ts';

/** Comparing once is worth its time unless Weir was run on a GPU with this version. */
export const CHECK_COMMAND = 'weir run --check';

/** `2.13` of `2.13.1+cu130`. */
export function minorOf(version: string): string {
  return /^\d+\.\d+/.exec(version)?.[0] ?? version;
}

/** Undefined: the version is not known to the adapter. */
export function trustOf(version: string): PytorchTrust | undefined {
  const minor = minorOf(version);
  return PYTORCH_VERSIONS.find((known) => known.version === minor)?.trust;
}

/** One sentence; the version is as PyTorch writes it. */
export function trustSentence(version: string): string {
  const trust = trustOf(version);
  if (trust === undefined) return `Weir does not know PyTorch ${minorOf(version)}.`;
  return `Weir on PyTorch ${minorOf(version)}: ${PYTORCH_TRUST[trust]}.`;
}

/** What to do where Weir was not run on a GPU with this version; undefined: nothing. */
export function trustAdvice(version: string): string | undefined {
  return trustOf(version) === 'gpu' ? undefined : `Compare your results once: ${CHECK_COMMAND}.`;
}
