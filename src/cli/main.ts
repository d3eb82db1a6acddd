#!/usr/bin/env node
// The `weir` command: parses the line, runs a command, and turns errors into one sentence and an exit code.
import { CommanderError } from 'commander';
import { InputError, UsageError } from '../base/errors.ts';
import { printable } from '../base/printable.ts';
import { isRunningJob } from '../run/child/child.ts';
import { RunError } from '../run/child/run-error.ts';
import { ExitCode } from './exit-code.ts';
import { guardOutput, noteOutputFailure, outputFailure } from './guarded-output.ts';
import { flushed, leave, leaveNow } from './leave.ts';
import { createProgram } from './program.ts';

// `weir analyze FILE | head` closes our stdout early, which is no error. `weir run` handles this itself.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') noteOutputFailure(error);
  else if (!isRunningJob()) leaveNow();
});
guardOutput();

try {
  await createProgram().parseAsync();
} catch (error) {
  process.exitCode = report(error);
}
await flushed();
const failure = outputFailure();
if (failure) {
  process.stderr.write(`weir: the output is incomplete: ${printable(failure.message)}\n`);
  // A job that ran keeps the exit code of its command.
  if (!isRunningJob()) process.exitCode = ExitCode.Input;
}
await leave();

function report(error: unknown): number {
  // commander has printed its message, or the help.
  if (error instanceof CommanderError) return error.exitCode === 0 ? ExitCode.Ok : ExitCode.Usage;
  if (error instanceof UsageError) {
    process.stderr.write(`weir: ${printable(error.message)}\n`);
    return ExitCode.Usage;
  }
  if (error instanceof RunError) {
    process.stderr.write(`weir: ${printable(error.message)}\n`);
    return error.exitCode;
  }
  if (error instanceof InputError || isSystemError(error)) {
    process.stderr.write(`weir: ${printable(error.message)}\n`);
    return ExitCode.Input;
  }
  process.stderr.write(
    `weir: this is a bug in weir. Please report it, with the file if you can:\n${error instanceof Error ? error.stack : String(error)}\n`,
  );
  return ExitCode.Defect;
}

/** Disk full, permission denied and the like: the operating system's message is the best one. */
function isSystemError(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && 'syscall' in error;
}
