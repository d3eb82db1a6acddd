#!/usr/bin/env node
// The `weir` command: parses the line, runs a command, and turns errors into one sentence and an exit code.
import { CommanderError } from 'commander';
import { InputError, UsageError } from '../base/errors.ts';
import { isRunningJob } from '../run/child/child.ts';
import { RunError } from '../run/child/run-error.ts';
import { ExitCode } from './exit-code.ts';
import { leave, leaveNow } from './leave.ts';
import { createProgram } from './program.ts';

// `weir analyze FILE | head` closes our stdout early; that is not an error. A command that runs a job sees to it itself.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  if (!isRunningJob()) leaveNow();
});

try {
  await createProgram().parseAsync();
} catch (error) {
  process.exitCode = report(error);
}
await leave();

function report(error: unknown): number {
  // commander has printed its own message, or the help that was asked for.
  if (error instanceof CommanderError) return error.exitCode === 0 ? ExitCode.Ok : ExitCode.Usage;
  if (error instanceof UsageError) {
    process.stderr.write(`weir: ${error.message}\n`);
    return ExitCode.Usage;
  }
  if (error instanceof RunError) {
    process.stderr.write(`weir: ${error.message}\n`);
    return error.exitCode;
  }
  if (error instanceof InputError || isSystemError(error)) {
    process.stderr.write(`weir: ${error.message}\n`);
    return ExitCode.Input;
  }
  process.stderr.write(
    `weir: this is a defect in weir, please report it with the file if you can:\n${error instanceof Error ? error.stack : String(error)}\n`,
  );
  return ExitCode.Defect;
}

/** Disk full, permission denied and the like: the operating system's own words are the best we have. */
function isSystemError(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && 'syscall' in error;
}
