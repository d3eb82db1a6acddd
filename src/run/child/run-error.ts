// What keeps a command from being started: one sentence and the exit code that `env`, `timeout` and `docker run` use for it.

export const RunExit = {
  /** Weir could not do its part. */
  Own: 125,
  /** The command is there and cannot be run. */
  NotExecutable: 126,
  NotFound: 127,
} as const;

export class RunError extends Error {
  override name = 'RunError';
  readonly exitCode: number;

  constructor(message: string, exitCode: number = RunExit.Own) {
    super(message);
    this.exitCode = exitCode;
  }
}
