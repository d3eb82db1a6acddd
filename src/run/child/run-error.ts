// The error of a command that cannot be started: one sentence, and the exit code of `env`, `timeout` and `docker run`.

import { OWN_EXIT_CODE } from '../../abi/environment.ts';

export const RunExit: Readonly<Record<'Own' | 'NotExecutable' | 'NotFound', number>> = {
  /** Weir itself failed. */
  Own: OWN_EXIT_CODE,
  /** The command exists but cannot be executed. */
  NotExecutable: 126,
  NotFound: 127,
};

export class RunError extends Error {
  override name = 'RunError';
  readonly exitCode: number;

  constructor(message: string, exitCode: number = RunExit.Own) {
    super(message);
    this.exitCode = exitCode;
  }
}
