// Runs the command in our process group with our input and output, and forwards the signals that are meant for it.
import { spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { ignoresHangUp } from './hang-up.ts';
import { inheritedStdio, type Stdio } from './inherited.ts';
import { type RunningCommand, startPosix } from './posix-process.ts';
import { RunError, RunExit } from './run-error.ts';
import { onSignals, signalName, signalNumber } from './signals.ts';

/** How a command ended. */
export interface ChildEnd {
  readonly code: number | null;
  /** By its name in shells. Node has no names for real-time signals. */
  readonly signal: string | null;
}

/** torchrun and other launchers forward these signals to their workers. */
const FORWARDED: readonly NodeJS.Signals[] = ['SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2'];
/** Another Ctrl-C within this time sends a stronger signal. */
const IMPATIENT_MS = 2000;
/** A Ctrl-C that is heard so soon after the start may have come before it, and then the command has not received it. */
const YOUNG_MS = 100;

export interface ChildOptions {
  readonly command: readonly string[];
  readonly environment: NodeJS.ProcessEnv;
  /** Input, output, errors. Default: ours. */
  readonly stdio?: readonly Stdio[];
  onStart?(child: RunningCommand): void;
  onTrouble(sentence: string): void;
}

let running = 0;

export function isRunningJob(): boolean {
  return running > 0;
}

/** Marks a job as running, even between commands, until the returned function is called. */
export function holdJob(): () => void {
  running++;
  return () => void running--;
}

/** Runs the command to its end. Throws RunError if it cannot be started. */
export async function runChild(options: ChildOptions): Promise<ChildEnd> {
  const hasTerminal = hasControllingTerminal();
  const isHangUpIgnored = ignoresHangUp(options.environment);
  let child: RunningCommand | undefined;
  let startedAt = Number.NEGATIVE_INFINITY;
  let lastInterrupt = Number.NEGATIVE_INFINITY;
  let impatience = 0;
  const forward = (signal: NodeJS.Signals) => void child?.kill(signal);
  const interrupt = () => {
    const now = performance.now();
    impatience = now - lastInterrupt <= IMPATIENT_MS ? impatience + 1 : 0;
    lastInterrupt = now;
    // At a terminal, the command has received the signal too. Without one, only we have.
    if (impatience === 0) {
      if (!hasTerminal || now - startedAt < YOUNG_MS || !isInForeground()) forward('SIGINT');
    } else {
      const signal = impatience === 1 ? 'SIGTERM' : 'SIGKILL';
      options.onTrouble(`interrupted again: sending ${signal} to the command`);
      forward(signal);
    }
  };
  // Before the start: a signal in between must not end us alone.
  const stopInterrupts = onSignals(['SIGINT'], interrupt);
  const stopForwarding = onSignals(isHangUpIgnored ? FORWARDED.filter((signal) => signal !== 'SIGHUP') : FORWARDED, forward);
  const release = holdJob();
  try {
    const stdio = inheritedStdio(options.stdio ?? ['inherit', 'inherit', 'inherit']);
    return await start(options, stdio, isHangUpIgnored, (started) => {
      child = started;
      startedAt = performance.now();
      options.onStart?.(started);
    });
  } finally {
    release();
    stopInterrupts();
    stopForwarding();
  }
}

async function start(
  options: ChildOptions,
  stdio: readonly (Stdio | number)[],
  ignoresHangUp: boolean,
  onStart: (child: RunningCommand) => void,
): Promise<ChildEnd> {
  const { command, environment } = options;
  const program = command[0] as string;
  try {
    const started = program === '' ? undefined : startPosix({ command, environment, stdio, ignoresHangUp });
    if (started) {
      onStart(started);
      const status = await started.ended;
      return 'code' in status ? { code: status.code, signal: null } : { code: null, signal: signalName(status.signal) };
    }
  } catch (error) {
    throw startError(program, error as NodeJS.ErrnoException);
  }
  return startByNode(options, stdio, onStart);
}

/** Where the system's functions cannot be called. */
function startByNode(
  { command, environment }: ChildOptions,
  stdio: readonly (Stdio | number)[],
  onStart: (child: RunningCommand) => void,
): Promise<ChildEnd> {
  const [program, ...parameters] = command as [string, ...string[]];
  return new Promise<ChildEnd>((resolve, reject) => {
    try {
      const started = spawn(program, parameters, { env: environment, stdio: [...stdio] });
      started.on('error', (error) => {
        if (started.pid === undefined) reject(startError(program, error));
      });
      // 'close' would also wait for the ends of pipes, which a daemon may hold open for ever.
      started.on('exit', (code, signal) => resolve({ code, signal }));
      if (started.pid !== undefined) onStart(started);
    } catch (error) {
      // spawn throws some errors directly.
      reject(startError(program, error as NodeJS.ErrnoException));
    }
  });
}

/** Ends this process as the command did: with its exit code, or by its signal. */
export async function endAs({ code, signal }: ChildEnd): Promise<void> {
  if (signal === null) {
    process.exitCode = code ?? 0;
    return;
  }
  const code128 = 128 + signalNumber(signal);
  // Node ignores the first two, so they would not end us. Of real-time signals, many parents would hear as an exit with 0.
  if (signal === 'SIGPIPE' || signal === 'SIGXFSZ' || !(signal in constants.signals)) {
    process.exitCode = code128;
    return;
  }
  // A core dump of ours would say nothing about the command.
  try {
    writeFileSync('/proc/self/coredump_filter', '0');
  } catch {}
  process.removeAllListeners(signal);
  process.kill(process.pid, signal as NodeJS.Signals);
  // A signal takes a moment to arrive.
  await sleep(2000);
  process.exitCode = code128;
}

function startError(program: string, error: NodeJS.ErrnoException): RunError {
  if (program === '') return new RunError('the command is empty; give a program to run after --', RunExit.NotFound);
  switch (error.code) {
    case 'ENOENT':
      return new RunError(`${program}: no such program; check its name and PATH`, RunExit.NotFound);
    case 'EACCES':
    case 'EPERM':
    case 'ENOEXEC':
    case 'EISDIR':
    case 'ENOTDIR':
    case 'ELOOP':
    case 'ENAMETOOLONG':
    case 'ETXTBSY':
      return new RunError(
        `${program}: cannot be executed (${error.code === 'EACCES' ? 'is it executable?' : error.code})`,
        RunExit.NotExecutable,
      );
    default:
      return new RunError(`${program} could not be started: ${error.message}`, RunExit.NotExecutable);
  }
}

/** Whether our process group is in the foreground of its terminal and so receives Ctrl-C from it. */
function isInForeground(): boolean {
  try {
    const stat = readFileSync('/proc/self/stat', 'latin1');
    // The fields after the name, which may contain anything: state, parent, process group, session, terminal,
    // foreground group.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return fields[2] === fields[5];
  } catch {
    return true;
  }
}

function hasControllingTerminal(): boolean {
  try {
    closeSync(openSync('/dev/tty', 'r'));
    return true;
  } catch {
    return false;
  }
}
