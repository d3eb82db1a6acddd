// Exit codes of the command. Documented in the README and stable.

export const ExitCode = {
  Ok: 0,
  /** The answer is no: a --fail-if rule is broken, a plan is wrong or impossible, results differ. */
  RuleBroken: 1,
  /** The command line is wrong. */
  Usage: 2,
  /** A file cannot be read, written or parsed. */
  Input: 3,
  /** A defect in weir. */
  Defect: 70,
} as const;
