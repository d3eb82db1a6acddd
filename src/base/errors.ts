// The errors Weir throws on purpose. InputError and UsageError hold one sentence for the user and have an exit code.
// Anything else that is thrown is a defect of Weir.

/** The given file or stream cannot be used: it is unreadable, corrupt, hostile or of another kind. Exit code 3. */
export class InputError extends Error {
  override name = 'InputError';
}

/** The command line is wrong: an unknown allocator, a malformed size. Exit code 2. */
export class UsageError extends Error {
  override name = 'UsageError';
}

/** A structure contradicts itself, or a caller misused it. Always a defect of Weir. */
export class InvariantError extends Error {
  override name = 'InvariantError';
}
