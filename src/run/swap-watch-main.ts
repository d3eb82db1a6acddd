// node dist/run/swap-watch-main.js DIR: a supervisor that does nothing but plan swaps, for tests on a GPU. Ends with its input.
import { watchSwapProfiles } from './swap-watch.ts';

const directory = process.argv[2];
if (directory === undefined) {
  process.stderr.write('which folder? swap-watch-main.js DIR\n');
  process.exitCode = 2;
} else {
  const stop = watchSwapProfiles(directory, {
    onPlan: (pid, plan, words) => process.stderr.write(`process ${pid}: ${words}, ${plan.moves.length} moves\n`),
    onError: (pid, error) => process.stderr.write(`process ${pid}: ${String(error)}\n`),
  });
  process.stdin.resume();
  process.stdin.on('end', stop);
}
