// What the process's exit code says; documented in the README and kept stable.

export const ExitCode = {
  Ok: 0,
  /** What was asked for is not so: a --fail-if rule is broken, a plan wrong or not to be had, results differ. */
  RuleBroken: 1,
  /** The command line makes no sense. */
  Usage: 2,
  /** A file cannot be read, written or understood. */
  Input: 3,
  /** A defect in weir. */
  Defect: 70,
} as const;
