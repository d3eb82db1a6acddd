// What runs under `weir run --plan` and `--swap` say, as tables beside PyTorch's own allocator on the same steps.
import type { SupervisedResult } from './supervised.ts';
import { byWorkload, header, median, row } from './table-cells.ts';

const GIB = 2 ** 30;
const gib = (bytes: number) => (bytes / GIB).toFixed(2);
/** PyTorch as it comes: what the others are compared with. */
const isNative = (run: SupervisedResult) => run.allocator === 'native' && !run.saveOnCpu && run.limit === undefined;

/** Steps after those in which a run is watched and planned: its last third. */
function settledStep(runs: readonly SupervisedResult[]): number {
  return median(runs.flatMap(({ times }) => times.slice(Math.ceil((times.length * 2) / 3))));
}

function losses(run: SupervisedResult, native: SupervisedResult | undefined): string {
  if (!run.deterministic || !run.flags) return '';
  return native && run.losses.join() === native.losses.join() ? `identical (${run.steps} steps)` : 'DIFFER';
}

function outcomeOf(run: SupervisedResult): string | undefined {
  if (run.failed) return `failed: ${run.failed.slice(0, 120)}`;
  return run.oom ? `out of memory after ${run.steps} steps` : undefined;
}

function rowsOf(
  results: readonly SupervisedResult[],
  cells: (run: SupervisedResult, native: readonly SupervisedResult[]) => string[],
): string {
  let text = '';
  for (const [workload, runs] of byWorkload(results)) {
    for (const deterministic of [false, true]) {
      const mode = runs.filter((run) => (run.deterministic ?? false) === deterministic);
      const native = mode.filter((run) => isNative(run) && !outcomeOf(run));
      for (const run of mode) text += row(workload, deterministic ? 'deterministic' : 'default', ...cells(run, native));
    }
  }
  return text;
}

const slower = (run: SupervisedResult, native: readonly SupervisedResult[]) =>
  native.length === 0 ? '' : (settledStep([run]) / settledStep(native)).toFixed(3);

export function planTable(results: readonly SupervisedResult[]): string {
  let text = '## `weir run --plan`: the step at planned places\n\n';
  text += 'Of the last third of the steps: reserved over the peak allocated, driver calls per step, step time over native.\n\n';
  text += header('workload', 'mode', 'run', 'reserved / allocated', 'at their places', 'driver calls per step', 'step : native', 'losses');
  return (
    text +
    rowsOf(results, (run, native) => {
      const name = run.flags ? 'weir run --plan' : run.allocator;
      const outcome = outcomeOf(run);
      if (outcome) return [name, outcome, '', '', '', ''];
      const measured = run.plan?.measured;
      const reserved = ((measured?.reserved ?? run.reserved) / run.peakAllocated).toFixed(4);
      if (!run.flags) return [name, reserved, '', '', slower(run, native), ''];
      if (!measured)
        return [name, `${reserved}; no plan: ${run.plan?.reason ?? 'not said'}`, '', '', slower(run, native), losses(run, native[0])];
      const calls = (measured.driverCalls / Math.max(1, measured.steps)).toFixed(2);
      return [name, reserved, `${(100 * measured.share).toFixed(1)} %`, calls, slower(run, native), losses(run, native[0])];
    })
  );
}

function nameOf({ flags, saveOnCpu, allocator, limit }: SupervisedResult): string {
  if (flags) return `weir run ${flags.map((flag) => (/^\d+$/.test(flag) ? `${gib(Number(flag))}GiB` : flag)).join(' ')}`;
  if (saveOnCpu) return 'save_on_cpu';
  return limit === undefined ? allocator : `${allocator} in ${gib(limit)} GiB`;
}

export function swapTable(results: readonly SupervisedResult[]): string {
  let text = '## `weir run --swap`: idle tensors in host memory\n\n';
  text += 'Peaks are those of the steps after planning, in GiB and against native; step time is that of the last third of the steps.\n\n';
  text += header(
    'workload',
    'mode',
    'run',
    'allocated',
    'reserved',
    'reserved against native',
    'step : native',
    'stalls, misses',
    'losses',
  );
  return (
    text +
    rowsOf(results, (run, native) => {
      const name = nameOf(run);
      const outcome = outcomeOf(run);
      if (outcome) return [name, outcome, '', '', '', '', ''];
      const allocated = run.swap && run.swap.peakAllocated > 0 ? run.swap.peakAllocated : run.peakAllocated;
      const reserved = run.swap && run.swap.peakReserved > 0 ? run.swap.peakReserved : run.peakReserved;
      const against = native[0] ? `${(100 * (reserved / native[0].peakReserved - 1)).toFixed(1)} %` : '';
      const counts = run.swap ? `${run.swap.stalls}, ${run.swap.misses}` : '';
      return [name, gib(allocated), gib(reserved), against, slower(run, native), counts, losses(run, native[0])];
    })
  );
}
