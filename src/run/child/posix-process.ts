// A program started by posix_spawn instead of Node. Node tells of a program that a real-time signal ended that it exited with 0,
// and makes it notice signals that it should ignore (`nohup`).
import { EventEmitter } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { Socket } from 'node:net';
import { constants } from 'node:os';
import type { Readable } from 'node:stream';
import { loadKoffi } from '../../backend/ffi.ts';
import { variablesAsGiven, wordsAsGiven } from './given-bytes.ts';
import type { Stdio } from './inherited.ts';
import { findProgram } from './program-path.ts';

/** What callers use of a program that runs. Node's ChildProcess has it too. */
export interface RunningCommand {
  readonly pid?: number | undefined;
  readonly stdout: Readable | null;
  readonly stderr: Readable | null;
  kill(signal: NodeJS.Signals): boolean;
  once(event: 'exit', listener: () => void): unknown;
}

/** The status that the system keeps of a program that has ended: its exit code, or the number of the signal. */
export type WaitStatus = { readonly code: number } | { readonly signal: number };

const SHELL = '/bin/sh';
/** Pointers to structures are buffers that are large enough on every Linux. */
const STRUCTURE_BYTES = 1024;
const SPAWN_SETSIGDEF = 4;
const SPAWN_SETSIGMASK = 8;
const WNOHANG = 1;
const F_GETFD = 1;
const F_SETFD = 2;
const FD_CLOEXEC = 1;
/** Node has no name for it. */
const O_CLOEXEC = 0o2000000;
const LAST_STANDARD_SIGNAL = 31;
/** SIGCHLD tells of the end. This is in case one is lost, and keeps Node's loop alive. */
const LOOK_EVERY_MS = 1000;

/** Buffers end with a zero. */
type Texts = readonly (string | Buffer | null)[];

interface Calls {
  spawn(pid: [number], file: string | Buffer, actions: Buffer, attributes: Buffer, words: Texts, variables: Texts): number;
  wait(pid: number, status: [number], options: number): number;
  fcntl(fd: number, command: number, type: 'int', value: number): number;
  pipe(ends: Int32Array, flags: number): number;
  signal(number: number, action: number): number;
  initActions(actions: Buffer): number;
  addDup(actions: Buffer, from: number, to: number): number;
  initAttributes(attributes: Buffer): number;
  setFlags(attributes: Buffer, flags: number): number;
  setDefaults(attributes: Buffer, set: Buffer): number;
  setMask(attributes: Buffer, set: Buffer): number;
  emptySet(set: Buffer): number;
  addToSet(set: Buffer, number: number): number;
}

let loaded: Calls | null | undefined;

/** Undefined where the system's functions cannot be called. */
function calls(): Calls | undefined {
  if (loaded === undefined) loaded = process.platform === 'linux' ? load() : null;
  return loaded ?? undefined;
}

function load(): Calls | null {
  try {
    const library = loadKoffi().load(null);
    const named = {
      spawn:
        'int posix_spawnp(_Out_ int *pid, const char *file, void *actions, void *attributes, const char **words, const char **variables)',
      wait: 'int waitpid(int pid, _Out_ int *status, int options)',
      fcntl: 'int fcntl(int, int, ...)',
      pipe: 'int pipe2(void *ends, int flags)',
      signal: 'intptr_t signal(int number, intptr_t action)',
      initActions: 'int posix_spawn_file_actions_init(void *actions)',
      addDup: 'int posix_spawn_file_actions_adddup2(void *actions, int from, int to)',
      initAttributes: 'int posix_spawnattr_init(void *attributes)',
      setFlags: 'int posix_spawnattr_setflags(void *attributes, short flags)',
      setDefaults: 'int posix_spawnattr_setsigdefault(void *attributes, void *set)',
      setMask: 'int posix_spawnattr_setsigmask(void *attributes, void *set)',
      emptySet: 'int sigemptyset(void *set)',
      addToSet: 'int sigaddset(void *set, int number)',
    };
    return Object.fromEntries(Object.entries(named).map(([name, text]) => [name, library.func(text)])) as unknown as Calls;
  } catch {
    return null;
  }
}

/** Makes this process, and programs that it starts from now on, ignore SIGHUP. False if that cannot be done. */
export function ignoreHangUp(): boolean {
  const SIG_IGN = 1;
  return calls()?.signal(constants.signals.SIGHUP, SIG_IGN) !== undefined;
}

export interface PosixOptions {
  readonly command: readonly string[];
  readonly environment: NodeJS.ProcessEnv;
  /** By number of the descriptor. A number stands for the same descriptor of ours. */
  readonly stdio: readonly (Stdio | number)[];
  readonly ignoresHangUp: boolean;
}

/** Undefined where the system's functions cannot be called. Throws as Node does if it cannot be started. */
export function startPosix(options: PosixOptions): PosixProcess | undefined {
  const system = calls();
  return system && PosixProcess.start(system, options);
}

export class PosixProcess extends EventEmitter implements RunningCommand {
  readonly pid: number;
  readonly stdout: Readable | null;
  readonly stderr: Readable | null;
  readonly ended: Promise<WaitStatus>;
  private isOver = false;

  static start(system: Calls, options: PosixOptions): PosixProcess {
    const program = options.command[0]!;
    const actions = Buffer.alloc(STRUCTURE_BYTES);
    const attributes = Buffer.alloc(STRUCTURE_BYTES);
    system.initActions(actions);
    system.initAttributes(attributes);
    system.setFlags(attributes, SPAWN_SETSIGDEF | SPAWN_SETSIGMASK);
    system.setDefaults(attributes, defaultSignals(system, options.ignoresHangUp));
    const none = Buffer.alloc(STRUCTURE_BYTES);
    system.emptySet(none);
    system.setMask(attributes, none);
    const ours = new Map<number, number>();
    const toClose: number[] = [];
    const passed: number[] = [];
    for (const [number, kind] of options.stdio.entries()) {
      if (kind === 'inherit' || kind === number) passed.push(number);
      // Gaps between inherited descriptors stay closed.
      else if (kind === 'ignore' && number <= 2) toClose.push(openSync('/dev/null', number === 0 ? 'r' : 'w'));
      else if (kind === 'pipe') {
        const ends = new Int32Array(2);
        if (system.pipe(ends, O_CLOEXEC) !== 0) {
          for (const fd of [...toClose, ...ours.values()]) closeSync(fd);
          throw Object.assign(new Error(`spawn ${program}: too many open files`), { code: 'EMFILE' });
        }
        ours.set(number, ends[0]!);
        toClose.push(ends[1]!);
      } else continue;
      if (!passed.includes(number)) system.addDup(actions, toClose.at(-1)!, number);
    }
    const words = wordsAsGiven(options.command);
    const variables = variablesAsGiven(options.environment);
    const pid: [number] = [0];
    let error: number;
    const restore = passed.map((fd) => keptOpen(system, fd));
    // The signal may come at once.
    const waiting = new EventEmitter();
    const look = () => void waiting.emit('look');
    process.on('SIGCHLD', look);
    try {
      error = system.spawn(pid, words[0]!, actions, attributes, [...words, null], [...variables, null]);
    } finally {
      for (const undo of restore) undo();
      for (const fd of toClose) closeSync(fd);
    }
    if (error === 0) return new PosixProcess(system, pid[0], ours, waiting, () => process.off('SIGCHLD', look));
    process.off('SIGCHLD', look);
    for (const fd of ours.values()) closeSync(fd);
    const code = Object.entries(constants.errno).find(([, number]) => number === error)?.[0] ?? `error ${error}`;
    // A script without a first line that names its shell.
    const script = code === 'ENOEXEC' && program !== SHELL ? findProgram(program, options.environment) : undefined;
    if (script !== undefined) return PosixProcess.start(system, { ...options, command: [SHELL, script, ...options.command.slice(1)] });
    throw Object.assign(new Error(`spawn ${program} ${code}`), { code });
  }

  private constructor(system: Calls, pid: number, pipes: ReadonlyMap<number, number>, waiting: EventEmitter, stopListening: () => void) {
    super();
    this.pid = pid;
    const reader = (number: number) => {
      const fd = pipes.get(number);
      return fd === undefined ? null : new Socket({ fd, readable: true, writable: false });
    };
    this.stdout = reader(1);
    this.stderr = reader(2);
    this.ended = new Promise((resolve) => {
      const timer = setInterval(() => waiting.emit('look'), LOOK_EVERY_MS);
      const look = () => {
        const status: [number] = [0];
        if (this.isOver || system.wait(pid, status, WNOHANG) !== pid) return;
        this.isOver = true;
        clearInterval(timer);
        stopListening();
        const signal = status[0] & 0x7f;
        this.emit('exit');
        resolve(signal === 0 ? { code: (status[0] >> 8) & 0xff } : { signal });
      };
      waiting.on('look', look);
      look();
    });
  }

  kill(signal: NodeJS.Signals): boolean {
    // Afterwards, the number may be that of another process.
    if (this.isOver) return false;
    try {
      return process.kill(this.pid, signal);
    } catch {
      return false;
    }
  }
}

/** Node ignores some signals itself, which the program must not inherit. */
function defaultSignals(system: Calls, ignoresHangUp: boolean): Buffer {
  const set = Buffer.alloc(STRUCTURE_BYTES);
  system.emptySet(set);
  const { SIGHUP, SIGKILL, SIGSTOP } = constants.signals;
  for (let number = 1; number <= LAST_STANDARD_SIGNAL; number++)
    if (number !== SIGKILL && number !== SIGSTOP && !(ignoresHangUp && number === SIGHUP)) system.addToSet(set, number);
  return set;
}

/** Lets the program inherit a descriptor, until the returned function is called. */
function keptOpen(system: Calls, fd: number): () => void {
  const flags = system.fcntl(fd, F_GETFD, 'int', 0);
  if (flags < 0 || (flags & FD_CLOEXEC) === 0) return () => {};
  system.fcntl(fd, F_SETFD, 'int', flags & ~FD_CLOEXEC);
  return () => void system.fcntl(fd, F_SETFD, 'int', flags);
}
