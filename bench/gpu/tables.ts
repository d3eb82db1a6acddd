// Tables of training runs: bitwise equality, memory, time, the largest batch, injected faults.
// Every figure is computed from the runs; none is entered by hand.
import type { SupervisedResult } from './supervised.ts';
import { debugTable, identicalTable, planTable, swapTable } from './supervised-tables.ts';
import { byWorkload, header, median, row } from './table-cells.ts';
import type { Result } from './training-server.ts';

const GB = 1e9;
const of = (results: readonly Result[], allocator: string) => results.filter((result) => result.allocator === allocator && !result.failed);

/** Median of the steps, without the first two, in which memory is taken. */
function medianStep(results: readonly Result[]): number {
  return median(results.flatMap((result) => result.times.slice(2)));
}

/** Median ratio of step times, over all pairs of runs. Each step is compared with the same step, because lengths vary. */
function stepRatio(results: readonly Result[], against: readonly Result[]): number {
  return median(
    results.flatMap((one) => against.flatMap((other) => one.times.slice(2).map((time, index) => time / other.times[index + 2]!))),
  );
}

/** The largest step ratio between two runs of one allocator. */
function furthest(runs: readonly Result[]): number {
  return Math.max(...runs.flatMap((one) => runs.flatMap((other) => (one === other ? [] : [stepRatio([one], [other])]))));
}

const warmUp = (results: readonly Result[]) => median(results.map((result) => result.times[0]! + result.times[1]!));

/** Losses are written as hexadecimal floats: equal text is equal bits. */
function lossDistance(one: Result, other: Result): number {
  return Math.max(0, ...one.losses.map((loss, index) => Math.abs(parseHexFloat(loss) - parseHexFloat(other.losses[index] ?? 'nan'))));
}

function parseHexFloat(text: string): number {
  const match = /^(-?)0x([01])\.([0-9a-f]*)p([+-]\d+)$/.exec(text);
  if (!match) return Number.NaN;
  const [, sign, lead, digits, exponent] = match;
  const fraction = digits === '' ? 0 : Number.parseInt(digits!, 16) / 16 ** digits!.length;
  return (sign === '-' ? -1 : 1) * (Number(lead) + fraction) * 2 ** Number(exponent);
}

/** Mean over pairs of runs, because the largest would grow with their number. */
function mean(distances: readonly number[]): number {
  return distances.reduce((sum, distance) => sum + distance, 0) / distances.length;
}

function deterministicTable(results: readonly Result[]): string {
  let text = '## Deterministic mode: PyTorch against Weir\n\n';
  text += header('workload', 'steps', 'losses', 'weights', 'allocations, peak requested');
  for (const [workload, runs] of byWorkload(results)) {
    const [native] = of(runs, 'native');
    const [weir] = of(runs, 'weir');
    if (!native || !weir) {
      text += row(workload, '', 'a run failed', '', '');
      continue;
    }
    const isSame = native.losses.join() === weir.losses.join();
    text += row(
      workload,
      weir.steps,
      isSame ? 'identical' : `differ by up to ${lossDistance(weir, native)}`,
      native.weights === weir.weights ? 'identical' : 'differ',
      native.allocations === weir.allocations && native.peakRequested === weir.peakRequested
        ? 'equal'
        : `${weir.allocations - native.allocations} and ${weir.peakRequested - native.peakRequested} bytes apart`,
    );
  }
  return text;
}

function comparisonTable(results: readonly Result[]): string {
  let text = '## Default mode: memory and time\n\nReserved is the peak, in GB and as a multiple of the peak allocated by the same run.\n';
  text +=
    'Step time is the median ratio of equal steps; two runs of native as far apart as any show the noise. Warm-up is the first two steps, the median of the runs.\n\n';
  text += header(
    'workload',
    'native GB',
    'expandable GB',
    'weir GB',
    'weir step : native',
    'native : native',
    'weir warm-up : expandable',
    'mean loss distance weir-native (native-native)',
  );
  for (const [workload, runs] of byWorkload(results)) {
    const native = of(runs, 'native');
    const expandable = of(runs, 'expandable');
    const weir = of(runs, 'weir');
    if (native.length === 0 || expandable.length === 0 || weir.length === 0) {
      text += row(workload, 'a run failed', '', '', '', '', '', '');
      continue;
    }
    const memory = (side: readonly Result[]) => {
      const worst = Math.max(...side.map((run) => run.peakReserved / run.peakAllocated));
      return `${(Math.max(...side.map((run) => run.peakReserved)) / GB).toFixed(2)} (${worst.toFixed(3)})`;
    };
    const apart = mean(weir.flatMap((one) => native.map((other) => lossDistance(one, other))));
    const noise = mean(native.flatMap((one, index) => native.slice(0, index).map((other) => lossDistance(one, other))));
    text += row(
      workload,
      memory(native),
      memory(expandable),
      memory(weir),
      stepRatio(weir, native).toFixed(3),
      furthest(native).toFixed(3),
      (warmUp(weir) / warmUp(expandable)).toFixed(3),
      `${apart.toExponential(1)} (${noise.toExponential(1)})`,
    );
  }
  return text;
}

function batchTable(results: readonly Result[]): string {
  let text = '## The largest batch under a limit\n\n';
  text += header('workload', 'limit', 'native', 'expandable', 'weir');
  for (const [workload, runs] of byWorkload(results)) {
    const largest = (allocator: string) =>
      Math.max(0, ...of(runs, allocator).flatMap((run) => (run.oom ? [] : [run.batch!]))) || 'none tried fits';
    text += row(workload, `${((runs[0]!.limit ?? 0) / 2 ** 30).toFixed(0)} GiB`, largest('native'), largest('expandable'), largest('weir'));
  }
  return text;
}

function faultTable(results: readonly Result[]): string {
  const clean = results.find((result) => result.allocator === 'native');
  let text = '## Driver calls made to fail at random during training\n\n';
  text += header('share of calls', 'seed', 'calls refused', 'outcome');
  for (const run of results) {
    if (run === clean) continue;
    const [rate, seed] = (run.environment?.['WEIR_FAULTS'] ?? ':').split(':');
    const losses = (run.losses ?? []).join();
    const outcome = run.failed
      ? `ended: ${run.failed.slice(-200)}`
      : run.oom
        ? `out of memory after ${run.steps} steps${clean?.losses.join().startsWith(losses) ? ', losses right until then' : ', LOSSES WRONG'}`
        : losses === clean?.losses.join()
          ? 'went on, losses identical'
          : 'LOSSES WRONG';
    text += row(`${(Number(rate) / 1e4).toFixed(1)} %`, seed ?? '', run.weir?.['driver_failures'] ?? '', outcome);
  }
  return text;
}

function streamTable(results: readonly Result[]): string {
  let text = '## Two trainings of BERT: two streams, one stream\n\n';
  text += header('run', 'peak reserved GB', 'over allocated', 'median step ms', 'requests served with memory of the other stream', 'waits');
  const nameOf = ({ workload, allocator, environment }: Result) =>
    `${workload === 'bert-wavelet' ? 'two streams' : 'one stream'}, ${allocator}${environment?.['WEIR_CHILD_LEND'] === '0' ? ', lending off' : ''}`;
  for (const name of new Set(results.map(nameOf))) {
    const runs = results.filter((result) => nameOf(result) === name && !result.failed);
    if (runs.length === 0) {
      text += row(name, 'failed', '', '', '', '');
      continue;
    }
    const reserved = Math.max(...runs.map((run) => run.peakReserved));
    text += row(
      name,
      (reserved / GB).toFixed(3),
      (reserved / runs[0]!.peakAllocated).toFixed(4),
      (medianStep(runs) * 1e3).toFixed(1),
      runs[0]!.weir?.['borrows'] ?? '',
      runs[0]!.weir?.['waits'] ?? '',
    );
  }
  return text;
}

/** cudaMallocAsync runs once per workload. Its time is compared with native runs if there are any. */
function asyncTable(results: readonly Result[], others: readonly Result[]): string {
  let text = '## cudaMallocAsync, once\n\n';
  text += header('workload', 'peak reserved GB', 'over allocated', 'step : native');
  for (const run of results) {
    if (run.failed || run.oom) {
      text += row(run.workload, run.oom ? 'out of memory' : 'failed', '', '');
      continue;
    }
    const native = of(
      others.filter((other) => other.workload === run.workload),
      'native',
    );
    text += row(
      run.workload,
      (run.peakReserved / GB).toFixed(2),
      (run.peakReserved / run.peakAllocated).toFixed(3),
      native.length > 0 ? stepRatio([run], native).toFixed(3) : '',
    );
  }
  return text;
}

/** One table for each part that has results. */
export function tablesOf(results: Readonly<Record<string, readonly SupervisedResult[]>>): string[] {
  const makers: readonly [string, (runs: readonly SupervisedResult[]) => string][] = [
    ['deterministic', deterministicTable],
    ['default', comparisonTable],
    ['batch', batchTable],
    ['streams', streamTable],
    ['faults', faultTable],
    ['async', (runs) => asyncTable(runs, results['default'] ?? [])],
    ['plan', planTable],
    ['swap', swapTable],
    ['identical', identicalTable],
    ['debug', debugTable],
  ];
  return makers.flatMap(([part, make]) => (results[part] ? [make(results[part])] : []));
}
