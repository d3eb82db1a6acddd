// A progress line on stderr, only on a terminal and only if the work takes a while.

export interface Progress {
  update(fraction: number, doing: string): void;
  /** Removes the line before other output. */
  clear(): void;
}

const FIRST_AFTER_MS = 500;
const EVERY_MS = 100;
const BAR = 24;

export function createProgress(quiet: boolean, stream: NodeJS.WriteStream = process.stderr): Progress {
  if (quiet || !stream.isTTY || process.env['CI']) return { update: () => {}, clear: () => {} };
  const started = performance.now();
  let last = 0;
  let shown = false;
  return {
    update(fraction, doing) {
      const now = performance.now();
      if (now - started < FIRST_AFTER_MS || now - last < EVERY_MS) return;
      last = now;
      shown = true;
      const done = Math.round(Math.min(1, Math.max(0, fraction)) * BAR);
      const width = Math.max(20, (stream.columns ?? 80) - BAR - 10);
      const bar = '#'.repeat(done) + '.'.repeat(BAR - done);
      stream.write(`\r\x1b[K${bar} ${String(Math.round(fraction * 100)).padStart(3)} %  ${doing.slice(0, width)}`);
    },
    clear() {
      if (shown) stream.write('\r\x1b[K');
      shown = false;
    },
  };
}
