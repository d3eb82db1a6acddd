// Tables of runs under `weir run --plan` and `--swap`, compared with PyTorch's allocator on the same steps.
import type { SupervisedResult } from './supervised.ts';
import { byWorkload, header, median, row } from './table-cells.ts';

const GIB = 2 ** 30;
const gib = (bytes: number) => (bytes / GIB).toFixed(2);
/** PyTorch default, the reference. */
const isNative = (run: SupervisedResult) => run.allocator === 'native' && !run.saveOnCpu && run.limit === undefined;

/** Median time of the last third of the steps, after watching and planning. */
function settledStep(runs: readonly SupervisedResult[]): number {
  return median(runs.flatMap(({ times }) => times.slice(Math.ceil((times.length * 2) / 3))));
}

const slower = (run: SupervisedResult, native: readonly SupervisedResult[]) =>
  native.length === 0 ? '' : (settledStep([run]) / settledStep(native.filter((other) => other !== run))).toFixed(3);

function outcomeOf(run: SupervisedResult): string | undefined {
  if (run.failed) return `failed: ${run.failed.slice(0, 120)}`;
  return run.oom ? `out of memory after ${run.steps} steps` : undefined;
}

function nameOf({ flags, saveOnCpu, allocator, limit }: SupervisedResult): string {
  if (flags) return ['weir run', ...flags.map((flag) => (/^\d+$/.test(flag) ? `${gib(Number(flag))}GiB` : flag))].join(' ');
  if (saveOnCpu) return 'save_on_cpu';
  return limit === undefined ? allocator : `${allocator} in ${gib(limit)} GiB`;
}

function rowsOf(
  results: readonly SupervisedResult[],
  cells: (run: SupervisedResult, native: readonly SupervisedResult[]) => string[],
): string {
  let text = '';
  for (const [workload, runs] of byWorkload(results)) {
    const native = runs.filter((run) => isNative(run) && !outcomeOf(run));
    for (const run of runs) text += row(workload, nameOf(run), ...(outcomeOf(run) ? [outcomeOf(run)!] : cells(run, native)));
  }
  return text;
}

export function planTable(results: readonly SupervisedResult[]): string {
  let text = '## `weir run --plan`: the step at planned places\n\n';
  text += 'Peak reserved over peak allocated, driver calls and step time of the last third of the steps. Losses in deterministic mode.\n\n';
  text += header('workload', 'run', 'reserved / allocated', 'ever', 'at their places', 'driver calls per step', 'step : native', 'losses');
  const ordinary = results.filter((run) => !run.deterministic);
  const compared = results.filter((run) => run.deterministic);
  return (
    text +
    rowsOf(ordinary, (run, native) => {
      const [allocated, held] = peaksOf(run);
      const reserved = [(held / allocated).toFixed(4), (run.peakReserved / run.peakAllocated).toFixed(4)];
      const calls = run.settledCalls === undefined || !run.settledSteps ? '' : (run.settledCalls / run.settledSteps).toFixed(2);
      if (!run.flags?.includes('--plan')) return [...reserved, '', calls, slower(run, native), ''];
      const measured = run.plan?.measured;
      const share = measured ? `${(100 * measured.share).toFixed(1)} %` : `no plan: ${run.plan?.reason ?? 'not said'}`;
      const pair = compared.filter(({ workload, batch }) => workload === run.workload && batch === run.batch);
      const planned = pair.find(({ flags }) => flags?.includes('--plan'));
      const bits = planned ? (outcomeOf(planned) ?? losses(planned, pair.filter(isNative))) : 'not compared';
      const followed = planned?.plan?.measured ? '' : '; no plan was followed';
      return [...reserved, share, calls, slower(run, native), `${bits}${planned ? followed : ''}`];
    })
  );
}

/** Peaks of the last third of the steps. */
function peaksOf(run: SupervisedResult): [allocated: number, reserved: number] {
  return [run.settledAllocated ?? run.peakAllocated, run.settledReserved ?? run.peakReserved];
}

export function swapTable(results: readonly SupervisedResult[]): string {
  let text = '## `weir run --swap auto`: idle tensors in host memory\n\n';
  text += 'Peaks, in GiB and against native, and step times are those of the last third of the steps.\n\n';
  text += header('workload', 'run', 'allocated', 'reserved', 'out per step', 'step : native', 'stalls, misses');
  return (
    text +
    rowsOf(results, (run, native) => {
      const [allocated, reserved] = peaksOf(run);
      const against = (bytes: number, of: number | undefined) =>
        of === undefined || isNative(run) ? gib(bytes) : `${gib(bytes)} (${(100 * (bytes / of - 1)).toFixed(1)} %)`;
      const { swap } = run;
      return [
        against(allocated, native[0] && peaksOf(native[0])[0]),
        against(reserved, native[0] && peaksOf(native[0])[1]),
        swap ? gib(swap.bytesOut / Math.max(1, swap.stepsPlanned + swap.stepsOff)) : '',
        slower(run, native),
        swap ? `${swap.stalls}, ${swap.misses}` : '',
      ];
    })
  );
}

/** If one run is longer, only its beginning is compared. */
function losses(run: SupervisedResult, native: readonly SupervisedResult[]): string {
  const [other] = native;
  if (!other) return 'nothing to compare with';
  const length = Math.min(run.losses.length, other.losses.length);
  const first = run.losses.findIndex((loss, index) => index < length && loss !== other.losses[index]);
  return first >= 0 ? `DIFFER from loss ${first + 1}` : `identical (${Math.min(run.steps, other.steps)} steps)`;
}

export function identicalTable(results: readonly SupervisedResult[]): string {
  let text = '## Deterministic mode: plans and swaps against PyTorch\n\n';
  text += 'Runs went on side by side, so their times mean nothing. Peaks are those of the last third of the steps, in GiB.\n\n';
  text += header('workload', 'run', 'losses', 'allocated', 'reserved', 'planned steps', 'of what left, parameters');
  return (
    text +
    rowsOf(results, (run, native) => {
      const [allocated, reserved] = peaksOf(run);
      const { swap, plan } = run;
      const followed = swap ? swap.stepsPlanned : (plan?.measured?.steps ?? plan?.reason ?? '');
      const parameters = swap && swap.bytesOut > 0 ? `${((100 * swap.parametersOut) / swap.bytesOut).toFixed(0)} %` : '';
      return [isNative(run) ? '' : losses(run, native), gib(allocated), gib(reserved), String(followed), parameters];
    })
  );
}

export function debugTable(results: readonly SupervisedResult[]): string {
  let text = '## Swapping in debug mode: copies summed up, memory that is given up unmapped at once\n\n';
  text += header('workload', 'run', 'steps', 'copies compared', 'planned steps', 'finding');
  return (
    text +
    rowsOf(results, (run) => {
      const { swap } = run;
      if (!swap) return [String(run.steps), '', '', 'nothing was swapped'];
      return [String(run.steps), String(swap.checked), String(swap.stepsPlanned), swap.stopped ?? 'none'];
    })
  );
}
