// The errors Weir raises on purpose: each is one sentence for the user, with an exit code.
// Anything else that is thrown is a defect of ours.

/** The file or stream given to us cannot be used: unreadable, corrupt, foreign or hostile. Exit code 3. */
export class InputError extends Error {
  override name = 'InputError';
}

/** The command line asks for something that cannot be: an unknown allocator, a malformed size. Exit code 2. */
export class UsageError extends Error {
  override name = 'UsageError';
}

/** A structure broke its own rules; thrown by `check()` only. Always a defect. */
export class InvariantError extends Error {
  override name = 'InvariantError';
}
