// Tables of what was computed or measured without a GPU: replay, lending, plans, the speed of Weir itself.
import { count, geometricMean, mib, sum, trainingOf } from './names.mjs';
import { newestJson, newestTable, newestText } from './sources.mjs';

const ALLOCATORS = { pytorch: 'PyTorch default', expandable: 'expandable_segments', weir: 'Weir' };
const allocatorOf = (name) => ALLOCATORS[name] ?? name.replace('gmlake', 'GMLake, stitching from').replace(' MiB', ' MiB on');

/** Overhead by training and allocator, with the mean, the worst and driver time below. */
function replayTable(part) {
  const { file, data } = newestJson('replay');
  const rows = data[part];
  const names = [...new Set(rows.map((row) => row.allocator))];
  const of = (name) => rows.filter((row) => row.allocator === name);
  const line = (title, cell) => [title, ...names.map((name) => cell(of(name)))];
  return {
    file,
    columns: ['Recording', ...names.map(allocatorOf)],
    rows: [
      ...[...new Set(rows.map((row) => row.trace))].map((trace) =>
        line(trainingOf(trace), (own) => own.find((row) => row.trace === trace).ratio.toFixed(4)),
      ),
      line('**geometric mean**', (own) => `**${geometricMean(own.map((row) => row.ratio)).toFixed(4)}**`),
      line('worst', (own) => Math.max(...own.map((row) => row.ratio)).toFixed(4)),
      line('driver time of all, ms', (own) => count(Math.round(sum(own.map((row) => row.driverMs))))),
      line('of that in the last third of events, ms', (own) => sum(own.map((row) => row.steadyMs)).toFixed(1)),
      line('driver calls of all', (own) => count(sum(own.map((row) => row.calls)))),
    ],
  };
}

const REPLAY = {
  title: 'Replay of recorded trainings: overhead by allocator',
  about:
    'Overhead = peak reserved / peak live. Driver time is modelled with costs measured on an H200. The policy of Weir was tuned on these recordings among others.',
  make: () => replayTable('training'),
};

const SMALL = {
  title: 'Replay of small pools: overhead by allocator',
  about: "SmartPool's published logs, pools of less than 1 GiB. Overhead = peak reserved / peak live.",
  make: () => replayTable('small'),
};

const LENDING = {
  title: 'Lending between streams, in replay',
  about:
    'Lag: how far streams are behind the program. A request is borrowed if it got memory that another stream had freed. A wait is needed if the release was not over when the wait was made. Driver time is modelled. The workload of two streams whose peaks alternate is generated: it is the best case for lending, and no recorded training comes near it.',
  make: () => {
    const { file, data } = newestJson('lending');
    return {
      file,
      columns: [
        'Recording',
        'Lending',
        'Lag, ms',
        'Peak reserved / peak live',
        'Driver time, ms',
        'Borrowed requests per step',
        'Waits per step',
        'Needed waits',
        'Stall, ms',
      ],
      rows: data.rows.map((row) => [
        trainingOf(row.workload),
        { off: 'off', glake: "GLake's rules", weir: "Weir's rules" }[row.lending],
        row.lending === 'off' ? '' : row.lagUs === 'step' ? 'grows during a step' : row.lagUs / 1e3,
        row.ratio.toFixed(4),
        row.driverMs.toFixed(1),
        row.borrowsPerStep.toFixed(1),
        row.waitsPerStep.toFixed(2),
        row.streams.neededWaits,
        (row.streams.stallUs / 1e3).toFixed(1),
      ]),
    };
  },
};

const PLANNED = {
  title: 'A recorded step at planned places, in the engine',
  about:
    'Overhead = peak reserved / peak live: of the whole run, and of its settled steps. Recordings are continued by 20 repetitions of their last step. `meta-` trainings are simulated: only their shapes were computed. The rest is what a settled run with a plan holds beyond peak live, nearly all of it in handles that persistent blocks use in part. Driver time is modelled, of the whole run. Served by the plan: requests that got their planned offset. Times are of one allocation and its free in the C form of the engine, without its own lock. Under `weir run`, two BERT on two streams get no plan.',
  make: () => {
    const { file, data } = newestJson('planned');
    return {
      file,
      columns: [
        'Recording',
        'Requests per step',
        'Overhead without a plan',
        'With a plan',
        'With a plan, settled',
        'Rest, MiB',
        'Driver calls per settled step without a plan',
        'With a plan',
        'Driver time without a plan, ms',
        'With a plan, ms',
        'Served by the plan',
        'Time without a plan, ns',
        'Time with a plan, ns',
      ],
      rows: data.rows.map((row) => [
        trainingOf(row.workload),
        count(row.requests),
        row.plainRatio.toFixed(4),
        row.everRatio.toFixed(4),
        row.settledRatio.toFixed(4),
        (row.rest.besideMib + row.rest.slabsMib + row.rest.roundingMib).toFixed(1),
        row.plainCallsPerStep.toFixed(1),
        row.callsPerStep.toFixed(1),
        count(Math.round(row.plainDriverMs)),
        count(Math.round(row.driverMs)),
        `${(100 * row.hitShare).toFixed(1)} %`,
        row.speed ? Math.round(row.speed.unplannedNs) : '',
        row.speed ? Math.round(row.speed.plannedNs) : '',
      ]),
    };
  },
};

const SWAPPED = {
  title: 'A swapped step of GPT-2 XL, in the engine',
  about: 'Peak of settled steps. Swapping frees and allocates blocks in the middle of a step; the engine must not lose memory to that.',
  make: () => {
    const { file, rows } = newestTable('swapped', 'A swapped step');
    const columns = ['', 'allocated GiB', 'reserved GiB', 'reserved / allocated', 'driver calls per step'];
    return {
      file,
      columns: ['Run', 'Peak allocated, GiB', 'Peak reserved, GiB', 'Overhead = reserved / allocated', 'Driver calls per step'],
      rows: rows.map((row) => columns.map(row)),
    };
  },
};

const MINIMALLOC = {
  title: "Offsets: minimalloc's benchmark",
  about: 'Each instance must fit in 1 MiB. Published: the time that the minimalloc paper gives for its own solver, on its own machine.',
  make: () => {
    const { file, rows } = newestTable('plan-offsets', 'minimalloc');
    const columns = [
      ['Instance', 'instance'],
      ['Buffers', 'buffers'],
      ['Solved', 'solved'],
      ['Weir, ms', 'ms'],
      ['Published, ms', 'minimalloc ms (published)'],
      ['Weir / published', 'ms / published'],
    ];
    return { file, columns: columns.map(([header]) => header), rows: rows.map((row) => columns.map(([, name]) => row(name))) };
  },
};

const IDEALLOC = {
  title: "Offsets: idealloc's benchmark",
  about:
    'Footprint / lower bound; 1 is optimal. Target: the best ratio known before. That of pangu_2.6B is our own replay (first fit by size), not a published figure.',
  make: () => {
    const { file, rows } = newestTable('plan-offsets', 'idealloc');
    return {
      file,
      columns: ['Instance', 'Buffers', 'Lower bound, bytes', 'Footprint / lower bound', 'Target', 'Time, ms'],
      rows: rows.map((row) => [
        row('instance'),
        count(row('buffers')),
        count(row('lower bound')),
        row('ratio'),
        row('target'),
        count(row('ms')),
      ]),
    };
  },
};

const SMARTPOOL = {
  title: "Offsets: SmartPool's traces",
  about:
    "Total memory / peak live memory of a training step; 1 is optimal. CnMem: the figure of VGG is from the log of SmartPool's authors, the other two are our own replays.",
  make: () => {
    const { file, rows } = newestTable('plan-offsets', 'SmartPool traces');
    return {
      file,
      columns: ['Trace', 'Weir', "SmartPool's algorithm", 'CnMem', 'Time, ms'],
      rows: rows.map((row) => [row('trace'), row('weir'), row('SmartPool (its algorithm)'), row('CnMem (published)'), count(row('ms'))]),
    };
  },
};

const AUTOSWAP = {
  title: "Swap plans: AutoSwap's own trace",
  about:
    'Lowest memory limit in MiB that costs no time, with the cost model of the AutoSwap paper. With fixed offsets for all blocks, the plan needs more than its limit: the last column.',
  make: () => {
    const { file, rows } = newestTable('plan-swaps', 'The same trace');
    const columns = [
      ['Peak without swapping', 'peak'],
      ['AutoSwap (published)', 'AutoSwap (published)'],
      ['AutoSwap (our implementation)', 'autoswap (ours)'],
      ['Weir', 'weir'],
      ['Reduction by Weir', 'reduction'],
      ['Bound given by bandwidth', 'bandwidth bound'],
      ['Weir, with fixed offsets', 'footprint with offsets'],
    ];
    return { file, columns: columns.map(([header]) => header), rows: rows.map((row) => columns.map(([, name]) => row(name))) };
  },
};

const SWAPS = {
  title: 'Swap plans for recorded steps',
  about:
    'MiB. No stall: the lowest memory limit that costs no time, with copies at 55 GB/s one way and 50.8 GB/s each way when both run. Every operator was waited for when these steps were recorded, so they are longer than real ones.',
  make: () => {
    const { file, data } = newestJson('plan-swaps');
    return {
      file,
      columns: [
        'Training',
        'Peak without swapping',
        'AutoSwap, no stall',
        'Weir, no stall',
        'Reduction by Weir',
        'Bandwidth allows',
        'With offsets',
        'Moved per step',
      ],
      rows: data.recorded.map((step) => [
        trainingOf(step.name),
        mib(step.peak),
        mib(step.autoSwap),
        mib(step.zeroStallLimit),
        `${(100 * (1 - step.zeroStallLimit / step.peak)).toFixed(1)} %`,
        `${(100 * (1 - step.bounds.bandwidth / step.peak)).toFixed(1)} %`,
        mib(step.footprint),
        mib(step.bytesMoved),
      ]),
    };
  },
};

const speed = (ns) => (ns === null ? '' : ns.toFixed(0));

const ENGINE = {
  title: 'Speed of the engine',
  about:
    'Nanoseconds per operation (an allocation or a free), median of several runs, without driver calls. The yardstick is best fit in a C++ `std::set`. The C form includes its lock.',
  make: () => {
    const { file, data } = newestJson('engine');
    return {
      file,
      columns: ['Workload', 'Engine as WebAssembly, ns', 'Engine as C, ns', 'C++ std::set, ns'],
      rows: data.rows.map((row) => [trainingOf(row.workload), speed(row.wasmNs), speed(row.engineNs), speed(row.setNs)]),
    };
  },
};

const ENGINE_PAIR = {
  title: 'An allocation and its free: the engine and std::set',
  about:
    'Nanoseconds for both calls, in C, of one size, with few blocks. At once: each block is freed right after its allocation. In turn: 32 blocks are freed and allocated in turn. The `std::set` is faster where its figure is smaller.',
  make: () => {
    const { file, data } = newestJson('engine');
    return {
      file,
      columns: ['Size, KiB', 'Engine, at once', 'std::set, at once', 'Engine, in turn', 'std::set, in turn'],
      rows: data.pairs.map((row) => [
        count(row.bytes / 1024),
        ...[row.engineAtOnceNs, row.setAtOnceNs, row.engineInTurnNs, row.setInTurnNs].map((ns) => ns.toFixed(1)),
      ]),
    };
  },
};

const SCALING = {
  title: 'Speed of the engine by number of blocks',
  about: 'Random requests of 512 B to 128 KiB. Instructions show the work of the algorithm; time also depends on the caches.',
  make: () => {
    const { file, data } = newestJson('engine');
    return {
      file,
      columns: ['Live blocks', 'Engine as WebAssembly, ns', 'Engine as C, ns', 'C++ std::set, ns', 'Instructions per operation'],
      rows: data.scaling.map((row) => [
        count(row.blocks),
        speed(row.wasmNs),
        speed(row.engineNs),
        speed(row.setNs),
        speed(row.instructions),
      ]),
    };
  },
};

const READING = {
  title: 'Reading a snapshot of 200 MB',
  about: 'A generated snapshot with stacks of 20 frames. Memory is the peak of the whole process.',
  make: () => {
    const { file, data } = newestJson('read-and-replay');
    return {
      file,
      columns: ['Reader', 'Time, s', 'Rate, MB/s', 'Peak memory / file size'],
      rows: data.readers.map((row) => [
        row.reader,
        row.seconds.toFixed(2),
        row.megabytesPerSecond.toFixed(0),
        row.memoryOverFile.toFixed(2),
      ]),
    };
  },
};

const REPLAY_SPEED = {
  title: 'Speed of replay',
  about: 'The same snapshot through a model of each allocator.',
  make: () => {
    const { file, data } = newestJson('read-and-replay');
    return {
      file,
      columns: ['Allocator', 'Events per second'],
      rows: data.replays.map((row) => [`\`${row.allocator}\``, count(row.eventsPerSecond)]),
    };
  },
};

const PAGE = {
  title: 'Speed of the page',
  about: 'A recording of 200 MB in `weir serve`. Frames of 16.7 ms are the most a 60 Hz screen shows.',
  make: () => {
    const { file, data } = newestJson('page');
    const after = { map: 'timeline and map drawn', verdict: 'verdict shown', wholeTable: 'all allocators compared' };
    const range = ({ medianMs, worstMs }) => `${medianMs.toFixed(1)} ms, ${worstMs.toFixed(1)} ms`;
    // Results before the stacked timeline have no answers to the pointer.
    const { gestures, hovers = [] } = data.stacked ?? data;
    return {
      file,
      columns: ['What', 'Result'],
      rows: [
        ...Object.entries(after).map(([key, what]) => [`from the start to: ${what}`, `${data.seconds[key].toFixed(1)} s`]),
        ...gestures.map((row) => [`${row.gesture}: median and worst frame`, range(row)]),
        ...hovers.map((row) => [`answer to the pointer over ${row.over}: median and worst`, range(row)]),
      ],
    };
  },
};

const JOB_PAGE = {
  title: 'Speed of the overview of a job',
  about: 'All ranks of a job in `weir serve FOLDER`. The raw file has the load of the machine before the run.',
  make: () => {
    const { file, data } = newestJson('job-page');
    const after = { firstTrack: 'the first track', overview: 'all ranks in the overview', verdict: 'verdict of the rank that failed' };
    const what = `${data.ranks} ranks of ${count(data.events)} events, from the start to`;
    return {
      file,
      columns: ['What', 'Seconds'],
      rows: Object.entries(after).map(([key, words]) => [`${what}: ${words}`, data.seconds[key].toFixed(1)]),
    };
  },
};

const HOOKS = {
  title: 'Cost of the swapping hooks on the host',
  about: 'Microseconds per call from Python, without a GPU.',
  make: () => {
    const { file, text } = newestText('swap-hooks');
    const rows = [...text.matchAll(/^(\S.*?)\s{2,}([\d.]+) ->\s+([\d.]+)\s+\+([\d.]+)$/gm)];
    return { file, columns: ['Operation', 'PyTorch, us', 'With hooks, us', 'Difference, us'], rows: rows.map((match) => match.slice(1)) };
  },
};

const IMPORT = {
  title: 'Cost of import torch',
  about:
    'With `weir_gpu` installed and not asked for: median and quartiles of the processor time of 30 fresh processes each, in turn. The entry point is all that Weir adds. The whole import varies by more than that.',
  make: () => {
    const { file, text } = newestText('import-cost');
    const rows = [...text.matchAll(/^(entry point|import torch)\s+(\S.*)$/gm)];
    return {
      file,
      columns: ['What', 'Without, ms', 'With, ms', 'Difference of pairs, ms'],
      rows: rows.map(([, what, cells]) => [what, ...cells.split(/\s+\|\s+/)]),
    };
  },
};

export const REPLAY_TABLES = [REPLAY, SMALL, LENDING, PLANNED, SWAPPED];
export const PLAN_TABLES = [MINIMALLOC, IDEALLOC, SMARTPOOL, AUTOSWAP, SWAPS];
export const SPEED_TABLES = [ENGINE, ENGINE_PAIR, SCALING, READING, REPLAY_SPEED, PAGE, JOB_PAGE, HOOKS, IMPORT];
