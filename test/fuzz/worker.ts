// One process of a fuzz run. It reads inputs from a number to a number and says how that went.
// Before each input it writes the number into a file: if it dies, the supervisor knows where.
import { openSync, writeSync } from 'node:fs';
import type { ChunkResult, ChunkTask, Defect } from './result.ts';
import { type Target, targetOf } from './targets.ts';

const [name, progressPath] = process.argv.slice(2) as [string, string];
const target = targetOf(name);
const progress = openSync(progressPath, 'w');
/** Looking at memory takes as long as some inputs. */
const LOOK_EVERY = 16;
const number32 = new Uint32Array(1);

process.on('message', (task: ChunkTask) => {
  work(target, task).then(
    (result) => process.send!(result),
    (error: unknown) => {
      console.error(error);
      process.exit(1);
    },
  );
});
process.on('disconnect', () => process.exit());
process.send!('ready');

async function work(target: Target, { seed, from, to, limits, isSlow }: ChunkTask): Promise<ChunkResult> {
  const outcomes = new Map<string, number>();
  const defects: Defect[] = [];
  let slowestMs = 0;
  let slowest = from;
  for (let number = from; number < to; number++) {
    // One file is read per process otherwise: garbage of earlier inputs does not count.
    if (isSlow) collectGarbage();
    else if (number % LOOK_EVERY === 0 && process.memoryUsage.rss() > limits.mostMemory / 4) {
      const left = collectGarbage();
      if (left > limits.mostMemory / 4)
        defects.push({ target: target.name, seed, number, what: `${toMib(left)} MiB are never given back: a leak` });
    }
    number32[0] = number;
    writeSync(progress, number32, 0, 4, 0);
    const bytes = target.input(seed, number);
    const began = performance.now();
    let outcome = 'read';
    try {
      const pending = target.read(bytes);
      if (pending) await pending;
    } catch (error) {
      if (target.isRefusal(error)) outcome = kindOf(error as Error);
      else {
        outcome = 'defect';
        defects.push({ target: target.name, seed, number, what: describe(error) });
      }
    }
    const tookMs = performance.now() - began;
    if (tookMs > slowestMs) {
      slowestMs = tookMs;
      slowest = number;
    }
    if (tookMs > limits.slowMs) defects.push({ target: target.name, seed, number, what: `it took ${Math.round(tookMs)} ms` });
    // Asking takes longer than many inputs do, so it is done for each input only in search of one.
    if (isSlow && peakMemory() > limits.mostMemory) {
      defects.push({ target: target.name, seed, number, what: `memory went up to ${toMib(peakMemory())} MiB` });
      break;
    }
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
  }
  return { from, to, outcomes: [...outcomes], slowestMs, slowest, peakMemory: peakMemory(), defects };
}

/** Collects garbage and returns the bytes still in use. */
function collectGarbage(): number {
  globalThis.gc!();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

function toMib(bytes: number): number {
  return Math.round(bytes / 2 ** 20);
}

/** The most memory that this process has ever had. */
function peakMemory(): number {
  return process.resourceUsage().maxRSS * 1024;
}

function describe(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

/** A message without what differs from input to input. */
function kindOf(error: Error): string {
  return error.message
    .slice(0, 300)
    .replace(/ \(it begins.*| for [\w.]+ at.*/, '')
    .replace(/'[^']*'|"[^"]*"|0x[0-9a-f]+|-?\d[\d.e+]*|NaN|-?Infinity/g, '_')
    .slice(0, 60);
}
