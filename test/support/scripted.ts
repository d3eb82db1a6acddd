// Recordings written call by call, for tests: a script allocates, frees and marks, and says which line does it.
import type { PhaseMark } from '../../src/abi/events.ts';
import { EventStore } from '../../src/trace/event-store.ts';
import { Symbols } from '../../src/trace/symbols.ts';
import { EventKind, type Trace } from '../../src/trace/trace.ts';
import { oneStreamTrace } from './one-stream.ts';
import type { Row } from './training.ts';

export interface ScriptedBlock {
  readonly address: number;
  readonly size: number;
}

export interface Script {
  /** Without rows, there is no stack. An address that is in use means that a free was lost. */
  alloc(size: number, rows?: readonly Row[], address?: number): ScriptedBlock;
  free(block: ScriptedBlock): void;
  /** One of the recorder's own marks, or any text of the program's. */
  mark(text: (typeof PhaseMark)[keyof typeof PhaseMark] | `step ${number}`): void;
  /** The process tells the category of the block at an address. */
  tell(address: number, category: number): void;
  /** One more frame on a stack, for stacks too deep to be written as rows. */
  push(stack: number, row: Row): number;
  allocAt(stack: number, size: number): ScriptedBlock;
}

export function scripted(write: (script: Script) => void, options: { readonly device?: number } = {}): Trace {
  const symbols = new Symbols();
  const store = new EventStore();
  const known = new Map<string, number>();
  let next = 0x7f00_0000_0000;
  let time = 1.7e15;
  const append = (kind: EventKind, address: number, size: number, stack: number) =>
    store.append(kind, address, size, time++, 0, 0, stack, 0);
  const push = (stack: number, [file, line, name]: Row) =>
    symbols.stacks.push(stack, symbols.frames.intern(symbols.internString(name), symbols.internString(file), line));
  const stackOf = (rows: readonly Row[]) => {
    const key = rows.flat().join('\0');
    let stack = known.get(key);
    if (stack === undefined) {
      stack = rows.reduceRight(push, -1);
      known.set(key, stack);
    }
    return stack;
  };
  const place = (size: number) => {
    next += Math.ceil(size / 512) * 512;
    return next;
  };
  const allocAt = (stack: number, size: number, address = place(size)) => {
    append(EventKind.Alloc, address, size, stack);
    return { address, size };
  };
  write({
    alloc: (size, rows = [], address = place(size)) => allocAt(stackOf(rows), size, address),
    allocAt: (stack, size) => allocAt(stack, size),
    push,
    free: ({ address, size }) => {
      append(EventKind.FreeRequested, address, size, -1);
      append(EventKind.FreeCompleted, address, size, -1);
    },
    mark: (text) => store.setOptional(append(EventKind.Mark, 0, 0, -1), 'detail', symbols.internString(text)),
    tell: (address, category) => store.setOptional(append(EventKind.Category, address, 0, -1), 'detail', category),
  });
  return oneStreamTrace(store.view(), symbols, { device: options.device });
}
