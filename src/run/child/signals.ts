// The signals that end a program, and listening to signals for a while.
// While anybody listens to a signal, Node does not end this process for it.
import { constants } from 'node:os';

/** Linux: the first real-time signal that programs may use. They have no names in Node. */
const FIRST_REAL_TIME = 34;

/** As shells name it: SIGTERM, SIGRTMIN+6. */
export function signalName(number: number): string {
  const known = Object.entries(constants.signals).find(([, value]) => value === number)?.[0];
  return known ?? (number >= FIRST_REAL_TIME ? `SIGRTMIN+${number - FIRST_REAL_TIME}` : `SIG${number}`);
}

/** 0 if there is no such signal. */
export function signalNumber(name: string): number {
  const [, number, offset] = /^SIG(?:(\d+)|RTMIN\+(\d+))$/.exec(name) ?? [];
  return constants.signals[name as NodeJS.Signals] ?? (offset !== undefined ? FIRST_REAL_TIME + Number(offset) : Number(number ?? 0));
}

export const ENDING_SIGNALS: readonly NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'];

/** Calls the listener for each of these signals, until the returned function is called. */
export function onSignals(signals: readonly NodeJS.Signals[], listener: (signal: NodeJS.Signals) => void): () => void {
  for (const signal of signals) process.on(signal, listener);
  return () => {
    for (const signal of signals) process.off(signal, listener);
  };
}
