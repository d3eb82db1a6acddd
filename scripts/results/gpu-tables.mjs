// Tables of what was measured on a GPU. Each says what it shows, and is made from the newest result file.
// `part` is the part of `npm run bench:gpu` that measures it.
import { count, gib, median, trainingOf } from './names.mjs';
import { newestJson, newestTable, newestText, printedBy } from './sources.mjs';

/** Columns of a table in a result file, under headers that can be read alone. */
function select({ file, rows }, columns) {
  return {
    file,
    columns: columns.map(([header]) => header),
    rows: rows.map((row) => columns.map(([, from]) => (typeof from === 'function' ? from(row) : row(from)))),
  };
}

const training = (row) => trainingOf(row('workload'));
const bold = (text) => `**${text}**`;

/** Step times of the runs in default mode, by training and allocator. */
function stepTimes() {
  const { file, data } = newestJson('gpu-training');
  const byWorkload = {};
  for (const { workload, allocator, times } of data.results.default) {
    byWorkload[workload] ??= { native: [], expandable: [], weir: [] };
    byWorkload[workload][allocator].push(times);
  }
  return { file, byWorkload };
}

/** Ratios of equal steps, over all pairs of runs, without the first two steps. Lengths vary, so only equal steps compare. */
const stepRatios = (runs, against) =>
  runs.flatMap((one) =>
    against.filter((other) => other !== one).flatMap((other) => one.slice(2).map((time, index) => time / other[index + 2])),
  );
const againstExpandable = (row) => {
  const { weir, expandable } = stepTimes().byWorkload[row('workload')];
  return median(stepRatios(weir, expandable)).toFixed(3);
};
const warmUp = (runs) => median(runs.map((times) => times[0] + times[1]));
const warmUpAgainstDefault = (row) => {
  const { weir, native } = stepTimes().byWorkload[row('workload')];
  return (warmUp(weir) / warmUp(native)).toFixed(3);
};

/** The one table for the README too. */
export const MEMORY = {
  title: 'Memory and step time of eight trainings',
  part: 'default',
  about:
    'Peak reserved in GB; in parentheses the overhead, which is peak reserved / peak allocated of the same run. Step time is the median ratio of equal steps. In parentheses: the ratio between the two runs of PyTorch default that are furthest apart, mostly the only two. Single steps differ by more ([noise](#noise-of-step-times)).',
  make: () =>
    select(newestTable('gpu-training', 'Default mode'), [
      ['Training', training],
      ['PyTorch default, GB', 'native GB'],
      ['expandable_segments, GB', 'expandable GB'],
      ['Weir, GB', (row) => bold(row('weir GB'))],
      ['Step time, Weir / default', (row) => `${row('weir step : native')} (${row('native : native')})`],
      ['Step time, Weir / expandable_segments', againstExpandable],
    ]),
};

const asPercent = (ratio) => `${ratio >= 1 ? '+' : ''}${(100 * (ratio - 1)).toFixed(1)} %`;

const NOISE = {
  title: 'Noise of step times',
  part: 'default',
  about:
    'How far equal steps of two runs of PyTorch default are apart: the middle 80 % of all ratios, and all of them. Runs: PyTorch default, expandable_segments, Weir. With two runs of PyTorch default, there is one pair. Differences between allocators within these ranges show nothing.',
  make: () => {
    const { file, byWorkload } = stepTimes();
    const range = (low, high) => `${asPercent(low)} to ${asPercent(high)}`;
    return {
      file,
      columns: ['Training', 'Runs', 'Middle 80 % of ratios', 'All ratios'],
      rows: Object.entries(byWorkload).map(([workload, { native, expandable, weir }]) => {
        const ratios = stepRatios(native, native).sort((a, b) => a - b);
        const at = (share) => ratios[Math.round(share * (ratios.length - 1))];
        return [
          trainingOf(workload),
          [native, expandable, weir].map((runs) => runs.length).join(', '),
          range(at(0.1), at(0.9)),
          range(at(0), at(1)),
        ];
      }),
    };
  },
};

const WARM_UP = {
  title: 'Start-up time and losses of the same trainings',
  part: 'default',
  about:
    'Warm-up is the time of the first two steps, in which memory is taken; median of the runs. The first run of each training is one of PyTorch default. It mostly took longer than the next one, which favours Weir here. Loss distance is the largest difference between the losses of two runs, averaged over pairs of runs. PyTorch against itself is the measure of noise.',
  make: () =>
    select(newestTable('gpu-training', 'Default mode'), [
      ['Training', training],
      ['Warm-up, Weir / PyTorch default', warmUpAgainstDefault],
      ['Warm-up, Weir / expandable_segments', 'weir warm-up : expandable'],
      ['Loss distance, Weir to PyTorch', (row) => row(LOSSES).split(' ')[0]],
      ['Loss distance, PyTorch to PyTorch', (row) => row(LOSSES).split(' ')[1].slice(1, -1)],
    ]),
};
const LOSSES = 'mean loss distance weir-native (native-native)';

const DETERMINISTIC = {
  title: 'Results in deterministic mode, Weir against PyTorch',
  part: 'deterministic',
  about: 'Losses and weights are compared bit by bit after the given number of steps, allocations and peak requested bytes by value.',
  make: () =>
    select(newestTable('gpu-training', 'Deterministic mode: PyTorch'), [
      ['Training', training],
      ['Steps', 'steps'],
      ['Losses', 'losses'],
      ['Weights', 'weights'],
      ['Number of allocations, peak requested', 'allocations, peak requested'],
    ]),
};

const BATCH = {
  title: 'Largest batch under a memory limit',
  part: 'batch',
  about: 'The largest batch that trained without an out-of-memory error.',
  make: () =>
    select(newestTable('gpu-training', 'largest batch'), [
      ['Training', training],
      ['Memory limit', 'limit'],
      ['PyTorch default', 'native'],
      ['expandable_segments', 'expandable'],
      ['Weir', (row) => bold(row('weir'))],
    ]),
};

const ASYNC = {
  title: 'cudaMallocAsync on the same trainings',
  part: 'async',
  about: 'One run each. Overhead = peak reserved / peak allocated. Step time is relative to PyTorch default.',
  make: () =>
    select(newestTable('gpu-training', 'cudaMallocAsync'), [
      ['Training', training],
      ['Peak reserved, GB', 'peak reserved GB'],
      ['Overhead', 'over allocated'],
      ['Step time / default', 'step : native'],
    ]),
};

const STREAMS = {
  title: 'Lending between streams: two BERT trainings',
  part: 'streams',
  about:
    'The same two trainings on two streams, and one after the other on one stream. Overhead = peak reserved / peak allocated. A request is borrowed if it got memory that another stream had freed; a wait makes the borrowing stream wait for the release on the GPU.',
  make: () =>
    select(newestTable('gpu-training', 'Two trainings of BERT'), [
      [
        'Run',
        (row) => row('run').replace('native', 'PyTorch default').replace('expandable', 'expandable_segments').replace('weir', 'Weir'),
      ],
      ['Peak reserved, GB', 'peak reserved GB'],
      ['Overhead', 'over allocated'],
      ['Median step, ms', 'median step ms'],
      ['Requests borrowed', 'requests served with memory of the other stream'],
      ['Waits', 'waits'],
    ]),
};

/** The runs of one training side by side: PyTorch as it comes, and the others by their names. */
function byTraining({ file, rows }, names) {
  const trainings = [...new Set(rows.map((row) => row('workload')))];
  const find = (workload, name) => rows.find((row) => row('workload') === workload && row('run') === name);
  const complete = trainings.filter((workload) => names.every((name) => find(workload, name)));
  return { file, runs: complete.map((workload) => [trainingOf(workload), ...names.map((name) => find(workload, name))]) };
}

const SWAP = {
  title: 'Swapping idle tensors to host memory: `weir run --swap auto`',
  part: 'swap',
  about:
    "Peaks of the last third of the steps, in GiB, once plans have settled. Step time is relative to PyTorch default in the same run. A stall is a wait for a late copy, a miss a tensor that was needed before its planned return. save_on_cpu is PyTorch's own `torch.autograd.graph.save_on_cpu(pin_memory=True)`.",
  make: () => {
    const names = ['native', 'save_on_cpu', 'weir run --swap auto'];
    const { file, runs } = byTraining(newestTable('gpu-training', 'weir run --swap auto'), names);
    return {
      file,
      columns: [
        'Training',
        'PyTorch default: allocated, reserved',
        'save_on_cpu: reserved',
        'save_on_cpu: step time',
        'Weir: allocated',
        'Weir: reserved',
        'Weir: step time',
        'Weir: swapped out per step',
        'Weir: stalls, misses',
      ],
      rows: [
        ...runs.map(([name, native, saved, weir]) => [
          name,
          `${native('allocated')}, ${native('reserved')}`,
          saved('reserved'),
          saved('step : native'),
          weir('allocated'),
          bold(weir('reserved')),
          weir('step : native'),
          weir('out per step'),
          weir('stalls, misses'),
        ]),
        // Trainings whose plans were given up, of which only these words were printed.
        ...printedBy(file, 'swap').map(({ workload, outcome, step }) => [trainingOf(workload), '', '', '', outcome, '', step, '', '']),
      ],
    };
  },
};

const PLAN = {
  title: 'A step at planned places: `weir run --plan`',
  part: 'plan',
  about:
    'Overhead = peak reserved / peak allocated: with a plan in the last third of the steps, without a plan in the runs of the first table. All were measured before small handles: a plan then reserved slightly more than no plan. Served by the plan: requests that got their planned offset. Step time is relative to PyTorch default in the same run.',
  make: () => {
    const { file, runs } = byTraining(newestTable('gpu-training', 'weir run --plan'), ['native', 'weir run --plan']);
    const plain = newestTable('gpu-training', 'Default mode').rows;
    const withoutPlan = (workload) =>
      /\((.+)\)/.exec(plain.find((row) => row('workload') === workload)?.('weir GB') ?? '')?.[1] ?? 'not measured';
    return {
      file,
      columns: [
        'Training',
        'PyTorch default: overhead',
        'Weir without a plan: overhead',
        'Weir with a plan: overhead',
        'Served by the plan',
        'Driver calls per step',
        'Step time / default',
      ],
      rows: runs.map(([name, native, weir]) => [
        name,
        native('reserved / allocated'),
        withoutPlan(weir('workload')),
        bold(weir('reserved / allocated')),
        weir('at their places'),
        weir('driver calls per step'),
        weir('step : native'),
      ]),
    };
  },
};

const IDENTICAL = {
  title: 'Losses with plans and swapping, in deterministic mode',
  part: 'identical',
  about:
    'Losses are compared bit by bit with PyTorch default, over the given number of steps. Peaks of the last third of the steps, in GiB. A row "PyTorch in N GiB" is PyTorch default under that memory limit. Runs on Weir had `WEIR_SWAP_TOLERANCE=any`: no swap plan was given up, whatever it cost. Runs shared the GPU, so no step times were taken, and none are known for `--swap SIZE --limit`. Stalls and misses show that such runs wait.',
  make: () => {
    const { file, rows } = newestTable('gpu-training', 'Deterministic mode: plans and swaps');
    // The raw results are in the order of the table.
    const raw = newestJson('gpu-training').data.results.identical;
    return select({ file, rows: rows.map((row, index) => Object.assign((name) => row(name), { raw: rawOf(raw[index], row) })) }, [
      ['Training', training],
      [
        'Run',
        (row) =>
          row('run')
            .replace(/^native$/, 'PyTorch default')
            .replace(/^native in/, 'PyTorch in'),
      ],
      ['Losses', (row) => row('losses').replace('out of memory', 'out-of-memory error') || 'reference'],
      ['Peak allocated', 'allocated'],
      ['Peak reserved', 'reserved'],
      ['Steps with a plan', 'planned steps'],
      ['Stalls (seconds in total), misses', ({ raw: { swap } }) => (swap ? waitsOf(swap) : '')],
      ['Tolerance', ({ raw }) => raw.environment?.WEIR_SWAP_TOLERANCE ?? ''],
      ['Parameters, share of bytes swapped out', 'of what left, parameters'],
    ]);
  },
};
const waitsOf = ({ stalls, stallUs, misses }) => `${count(stalls)} (${(stallUs / 1e6).toFixed(2)}), ${count(misses)}`;

/** The raw result of a row, if it is of the same training and of as many steps. */
function rawOf(result, row) {
  const steps = /\((\d+) steps\)/.exec(row('losses'))?.[1];
  if (result?.workload !== row('workload') || (steps !== undefined && Number(steps) !== result.steps))
    throw new Error(`the raw results are not in the order of the table: ${row('workload')}, ${row('run')}`);
  return result;
}

const DEBUG = {
  title: 'Swapping in debug mode',
  part: 'debug',
  about:
    'Every copy is compared by checksum when it comes back, and memory that was given up is unmapped at once, so that a use of it fails.',
  make: () =>
    select(newestTable('gpu-training', 'Swapping in debug mode'), [
      ['Training', training],
      ['Run', 'run'],
      ['Steps', 'steps'],
      ['Copies compared', (row) => count(row('copies compared'))],
      ['Steps with a plan', 'planned steps'],
      ['Differences found', 'finding'],
    ]),
};

const FAULTS = {
  title: 'Training while driver calls fail at random',
  part: 'faults',
  about:
    'GPT-2 XL, four steps. A share of all driver calls of the allocator is refused. Losses are compared bit by bit with a run without faults.',
  make: () =>
    select(newestTable('gpu-training', 'Driver calls made to fail'), [
      ['Share of calls refused', 'share of calls'],
      ['Seed', 'seed'],
      ['Calls refused', 'calls refused'],
      ['Outcome', (row) => row('outcome').replace('went on', 'finished').replace('out of memory', 'out-of-memory error')],
    ]),
};

const PAIR = {
  title: 'Time of an allocation and its free inside PyTorch',
  about: 'Nanoseconds on the host. "recorded" is the same allocator while Weir records every event of it.',
  make: () => {
    const { file, data } = newestJson('gpu-pair');
    const sides = ['pytorch alone', 'weir', 'pytorch, recorded', 'weir, recorded'];
    return {
      file,
      columns: ['Operation', 'PyTorch default, ns', 'Weir, ns', 'PyTorch default recorded, ns', 'Weir recorded, ns'],
      rows: Object.entries(data.medians).map(([name, times]) => [name, ...sides.map((side) => count(times[side]))]),
    };
  },
};

const REPLAY = {
  title: 'Replay with real memory: measured against modelled driver time',
  about:
    'Recorded trainings replayed on a GPU. Overhead = peak reserved / peak live. Every block was filled, and compared when it was freed; a difference would have ended the run.',
  make: () => {
    const { file, data } = newestJson('gpu-replay');
    const rows = data.traces.flatMap(({ file: trace, results }) =>
      results.map((result) => [
        trainingOf(trace.split('.')[0]),
        `\`${result.allocator}\``,
        gib(result.peakReserved),
        result.reservedOverLive.toFixed(4),
        (result.driver.timeUs / 1e3).toFixed(1),
        (result.modelled.timeUs / 1e3).toFixed(1),
        (result.driver.timeUs / result.modelled.timeUs).toFixed(2),
        count(result.verification.blocks),
      ]),
    );
    return {
      file,
      columns: [
        'Training',
        'Allocator',
        'Peak reserved, GiB',
        'Overhead',
        'Driver time measured, ms',
        'Driver time modelled, ms',
        'Measured / modelled',
        'Blocks verified',
      ],
      rows,
    };
  },
};

const COSTS = {
  title: 'Time of driver calls',
  about: 'Microseconds per handle when 2 GiB are taken in handles of one size: the model that replay uses, and two GPU nodes.',
  make: () =>
    select(newestTable('gpu-driver-costs', 'Driver calls'), [
      ['Handle', 'handle'],
      ['cuMemCreate: model / node A / node B', 'create: model / node A / node B'],
      ['cuMemMap', 'map'],
      ['cuMemSetAccess', 'setAccess'],
      ['cuMemUnmap', 'unmap'],
      ['cuMemRelease', 'release'],
    ]),
};

const PREDICTED = {
  title: 'Predicted and real out-of-memory errors',
  about:
    'GPT-2 XL, 16 steps under a memory limit. The prediction is made by `weir analyze` from one recording that ran out of memory at 21 GiB.',
  make: () =>
    select(newestTable('gpu-predictions', 'Predictions'), [
      ['PyTorch settings', 'settings'],
      ['Memory limit, GiB', 'limit, GiB'],
      ['Steps finished', 'steps done'],
      ['Out-of-memory errors', 'ooms'],
      ['Peak reserved, bytes', (row) => bytesOf(row('peak reserved, bytes'))],
      ['Predicted', 'predicted'],
    ]),
};

const PREDICTED_PEAKS = {
  title: 'Predicted and real peaks with other settings',
  about: 'GPT-2 XL with settings that were predicted from a recording with default settings.',
  make: () =>
    select(newestTable('gpu-predictions', 'Predictions', 1), [
      ['PyTorch settings', 'settings'],
      ['Peak reserved, bytes', (row) => bytesOf(row('peak reserved, bytes'))],
      ['Predicted, bytes', (row) => bytesOf(row('predicted, bytes'))],
    ]),
};
const bytesOf = (text) => (/^\d+$/.test(text) ? count(text) : text);

const LENT = {
  title: 'Lending under stress',
  about:
    'Random operations on several streams; every block is filled by one stream and compared by it. Without waits the test must find errors.',
  make: () => {
    const { file, text } = newestText('gpu-lending');
    const rows = [...text.matchAll(/^(with(?:out)? waits)\s+(\{.*\})$/gm)].map(([, name, json]) => {
      const { operations, checks, corrupted, borrows, waits } = JSON.parse(json);
      return [name, ...[operations, checks, borrows, waits, corrupted].map(count)];
    });
    return { file, columns: ['Run', 'Operations', 'Blocks compared', 'Requests borrowed', 'Waits', 'Blocks corrupted'], rows };
  },
};

const FEATURES = {
  title: "What programs do with PyTorch's memory, on Weir's allocator",
  about: 'One test for each feature, on a real GPU.',
  make: () => {
    const { file, text } = newestText('gpu-features');
    const [first] = text.split(/^\d+ of \d+ passed/m);
    const rows = [...first.matchAll(/^(PASS|FAIL) (\w+) \(([\d.]+) s\)/gm)].map(([, outcome, name]) => [
      name.replaceAll('_', ' '),
      outcome === 'PASS' ? 'passed' : 'failed',
    ]);
    return { file, columns: ['Feature', 'Outcome'], rows };
  },
};

export const GPU_TABLES = [
  MEMORY,
  NOISE,
  WARM_UP,
  DETERMINISTIC,
  BATCH,
  ASYNC,
  SWAP,
  PLAN,
  IDENTICAL,
  DEBUG,
  STREAMS,
  LENT,
  FAULTS,
  PAIR,
  REPLAY,
  COSTS,
  PREDICTED,
  PREDICTED_PEAKS,
  FEATURES,
];
