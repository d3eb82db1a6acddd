// `weir replay FILE`: a recorded run through chosen allocators, with every setting at hand.
import { Command, Option } from 'commander';
import type { AllocatorContext } from '../../allocator/allocator.ts';
import { formatConf, type PyTorchSettings, parseConf, settingsFromRecording } from '../../allocator/pytorch/settings.ts';
import { type AllocatorChoice, chooseAllocators, pytorchChoice } from '../../allocator/registry.ts';
import { isTouchable } from '../../backend/memory.ts';
import { SimulatedBackend } from '../../backend/simulated.ts';
import { formatBytes, MIB, parseBytes } from '../../base/bytes.ts';
import { UsageError } from '../../base/errors.ts';
import { withPlan } from '../../plan/steps/planned-choice.ts';
import { BACKEND_NAMES, type BackendName, openBackend } from '../../pool/open-backend.ts';
import { reconstruct } from '../../replay/reconstruct.ts';
import { RecordedPlacement } from '../../replay/recorded-placement.ts';
import { replay } from '../../replay/replay.ts';
import { scaleTrace } from '../../replay/scale.ts';
import { type Verification, VerifyingAllocator } from '../../replay/verifying-allocator.ts';
import { type ReplayRow, replayJson } from '../../report/json.ts';
import { formatTable } from '../../report/table.ts';
import { resultOf } from '../../report/what-if.ts';
import { recordedEngine, summarizeTrace, type TraceSummary } from '../../trace/summary.ts';
import type { Trace } from '../../trace/trace.ts';
import { loadRecording, pickGpus, requireDemand } from '../input.ts';
import { ALLOCATOR_HELP, allocatorOption, asArgument, capacityOption, gpuOption, jsonOption, quietOption } from '../options.ts';
import { createProgress, type Progress } from '../progress.ts';

/** How far apart the words are that are read back from a real block. Reading one from a GPU takes ten microseconds. */
const VERIFY_STRIDE = { host: MIB, cuda: 8 * MIB } as const;

interface ReplayOptions {
  readonly allocator?: AllocatorChoice[];
  readonly capacity?: number;
  readonly gpu?: number;
  readonly backend: BackendName;
  readonly device?: BackendName;
  readonly scale: number;
  readonly verify: boolean;
  readonly conf?: string;
  readonly maxSplitSize?: string;
  readonly maxNonSplitRounding?: string;
  readonly largeSegmentSize?: string;
  readonly garbageCollectionThreshold?: string;
  readonly roundupPower2Divisions?: string;
  readonly memoryFraction?: string;
  readonly paranoid?: boolean;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

export function replayCommand(): Command {
  return (
    new Command('replay')
      .summary('run a recording through other allocators')
      .description(
        'Runs every recorded request and free through the chosen allocators and says what each reserved, how often it failed and what the driver calls cost.',
      )
      .argument('<file>', 'a PyTorch snapshot (pickle or JSON) or a .weir file, plain, gzip or zstd; - is standard input')
      .addOption(allocatorOption('which allocators (default: the recorded one and expandable)'))
      .addOption(capacityOption())
      .addOption(gpuOption())
      .addOption(
        new Option('--backend <kind>', 'where memory comes from: modelled, real memory of this machine, or a GPU')
          .choices(BACKEND_NAMES)
          .default('sim'),
      )
      // The name that --backend had in version 0.1.
      .addOption(new Option('--device <kind>').choices(BACKEND_NAMES).hideHelp())
      .addOption(
        new Option('--scale <factor>', 'requests made smaller, like 1/64, to fit real memory')
          .argParser(asArgument(parseScale))
          .default(1, '1'),
      )
      .option('--no-verify', 'on real memory, do not fill every block and look at it again when it is freed')
      .option('--conf <string>', 'settings for pytorch and expandable, as in PYTORCH_CUDA_ALLOC_CONF')
      .option('--max-split-size <size>', 'the same, one by one: max_split_size_mb')
      .option('--max-non-split-rounding <size>', 'max_non_split_rounding_mb')
      .option('--large-segment-size <size>', 'large_segment_size_mb')
      .option('--garbage-collection-threshold <share>', 'garbage_collection_threshold')
      .option('--roundup-power2-divisions <n>', 'roundup_power2_divisions: a number or [64:8,256:4,>:1]')
      .option('--memory-fraction <share>', 'set_per_process_memory_fraction; needs --capacity or a recording that knows its GPU')
      .option('--paranoid', "check the allocator's invariants at every event (slow)")
      .addOption(jsonOption())
      .addOption(quietOption())
      .addHelpText(
        'before',
        `Examples:
  weir replay snapshot.pickle --allocator pytorch,expandable --capacity 80GiB
  weir replay snapshot.pickle --allocator 'pytorch[max_split_size_mb:128]' --json
  weir replay snapshot.pickle --allocator weir --backend cuda    # with real memory on a real GPU
`,
      )
      .addHelpText('after', ALLOCATOR_HELP)
      .action(replayFile)
  );
}

async function replayFile(file: string, given: ReplayOptions): Promise<void> {
  const options = { ...given, backend: given.device ?? given.backend };
  const conf = confFromFlags(options);
  const progress = createProgress(options.quiet ?? false);
  const recording = await loadRecording(file, progress);
  const traces = pickGpus(recording, options.gpu, file);
  requireDemand(traces, file, 'requests');
  const outputs = traces.map((trace) => {
    const summary = summarizeTrace(trace);
    const recorded = settingsFromRecording(trace.settings);
    const choices = (options.allocator ?? defaultChoices(trace, recorded)).map((choice) => withConf(withPlan(choice, trace), conf));
    return { trace, summary, rows: replayAll(trace, summary, choices, formatConf({ ...recorded, memoryFraction: 1 }), options, progress) };
  });
  progress.clear();
  for (const { trace, summary, rows } of outputs) {
    if (options.json) process.stdout.write(`${JSON.stringify(replayJson(summary, rows))}\n`);
    else process.stdout.write(formatRows(trace, summary, rows));
  }
}

function defaultChoices(trace: Trace, recorded: PyTorchSettings): AllocatorChoice[] {
  const engine = recordedEngine(trace);
  if (engine) return chooseAllocators(`${engine},pytorch,expandable`);
  const asRecorded = pytorchChoice(recorded.expandableSegments ? 'expandable' : 'pytorch', recorded);
  const others = chooseAllocators('pytorch,expandable').filter((choice) => choice.conf !== asRecorded.conf);
  return [asRecorded, ...others];
}

function replayAll(
  trace: Trace,
  summary: TraceSummary,
  choices: readonly AllocatorChoice[],
  recordedConf: string,
  options: ReplayOptions,
  progress: Progress,
): ReplayRow[] {
  progress.update(0, 'replaying as recorded');
  const { emptyCacheBefore, limits } = reconstruct(trace);
  const knownBytes = options.capacity ?? trace.limits.deviceBytes;
  if (choices.some((choice) => choice.conf?.includes('per_process_memory_fraction')) && knownBytes === undefined) {
    throw new UsageError('a memory fraction needs the size of the GPU; add --capacity SIZE');
  }
  const scaled = scaleTrace(trace, options.scale);
  const floor = options.scale === 1 ? summary.peakDemand : summarizeTrace(scaled).peakDemand;
  const onProgress = (index: number, name: string) => (done: number) =>
    progress.update((index + done) / choices.length, `replaying ${name}`);

  const simulate = (choice: AllocatorChoice, index: number) => {
    const isRecorded = choice.conf === recordedConf && options.scale === 1 && !recordedEngine(trace);
    return replay(scaled, choice.create, {
      backend: new SimulatedBackend({ capacity: options.capacity, placement: isRecorded ? RecordedPlacement.of(trace) : undefined }),
      deviceBytes: knownBytes ?? limits.capacity,
      emptyCacheBefore,
      restoreStart: isRecorded,
      checkEvery: options.paranoid ? 1 : 0,
      onProgress: onProgress(index, choice.name),
    });
  };
  const runFor = (
    choice: AllocatorChoice,
    index: number,
    backend: Exclude<BackendName, 'sim'>,
  ): Pick<ReplayRow, 'result' | 'verification' | 'description'> => {
    const opened = openBackend(backend, options.capacity);
    try {
      const touchable = options.verify && isTouchable(opened.backend) ? opened.backend : undefined;
      let verification: Verification | undefined;
      const create = (context: AllocatorContext) => {
        const allocator = choice.create(context);
        if (!touchable) return allocator;
        const verifier = new VerifyingAllocator(allocator, touchable, VERIFY_STRIDE[backend]);
        verification = verifier.verification;
        return verifier;
      };
      const result = replay(scaled, create, {
        backend: opened.backend,
        deviceBytes: opened.capacity,
        emptyCacheBefore,
        checkEvery: options.paranoid ? 1 : 0,
        onProgress: onProgress(index, choice.name),
      });
      return { result: resultOf(result), verification, description: opened.description };
    } finally {
      opened.close();
    }
  };
  return choices.map((choice, index) => {
    const started = performance.now();
    const modelled = resultOf(simulate(choice, index));
    const real = options.backend === 'sim' ? undefined : runFor(choice, index, options.backend);
    return {
      allocator: choice.name,
      backend: options.backend,
      result: real?.result ?? modelled,
      modelled: real ? modelled : undefined,
      verification: real?.verification,
      description: real?.description,
      floor,
      capacity: options.capacity,
      wallMs: performance.now() - started,
    };
  });
}

/** `1/64`, `0.25`: what every request is multiplied by. */
function parseScale(text: string): number {
  const match = /^(\d+(?:\.\d+)?)(?:\/(\d+(?:\.\d+)?))?$/.exec(text.trim());
  const factor = match ? Number(match[1]) / Number(match[2] ?? 1) : Number.NaN;
  if (!(factor > 0) || !Number.isFinite(factor)) throw new UsageError(`'${text}' is not a scale; write it like 1/64`);
  return factor;
}

/** The single-setting flags as a configuration string, behind --conf. */
function confFromFlags(options: ReplayOptions): string {
  const mib = (flag: string, text: string) => {
    const bytes = asArgument(parseBytes)(text);
    if (bytes % MIB !== 0) throw new UsageError(`--${flag} must be whole MiB, like 128MiB`);
    return bytes / MIB;
  };
  const parts: string[] = [];
  if (options.conf) parts.push(options.conf);
  if (options.maxSplitSize) parts.push(`max_split_size_mb:${mib('max-split-size', options.maxSplitSize)}`);
  if (options.maxNonSplitRounding) parts.push(`max_non_split_rounding_mb:${mib('max-non-split-rounding', options.maxNonSplitRounding)}`);
  if (options.largeSegmentSize) parts.push(`large_segment_size_mb:${mib('large-segment-size', options.largeSegmentSize)}`);
  if (options.garbageCollectionThreshold) parts.push(`garbage_collection_threshold:${options.garbageCollectionThreshold}`);
  if (options.roundupPower2Divisions) parts.push(`roundup_power2_divisions:${options.roundupPower2Divisions}`);
  if (options.memoryFraction) parts.push(`per_process_memory_fraction:${options.memoryFraction}`);
  return parts.join(',');
}

/** The choice with further PyTorch settings, where it is one of PyTorch's allocators. */
function withConf(choice: AllocatorChoice, conf: string): AllocatorChoice {
  if (conf === '' || choice.conf === undefined) return choice;
  return pytorchChoice(choice.kind === 'expandable' ? 'expandable' : 'pytorch', parseConf(conf, parseConf(choice.conf)));
}

function formatRows(trace: Trace, summary: TraceSummary, rows: readonly ReplayRow[]): string {
  const columns = [
    { title: 'allocator', align: 'left' },
    { title: 'peak reserved', align: 'right' },
    { title: '/ live', align: 'right' },
    { title: 'failed', align: 'right' },
    { title: 'retries', align: 'right' },
    { title: 'driver time', align: 'right' },
    { title: 'modelled', align: 'right' },
    { title: 'last third', align: 'right' },
    { title: 'driver calls', align: 'right' },
    { title: 'replayed in', align: 'right' },
  ] as const;
  const cells = rows.map(({ allocator, result, modelled, floor, wallMs }) => [
    allocator,
    formatBytes(result.peakReserved),
    floor > 0 ? (result.peakReserved / floor).toFixed(3) : '',
    String(result.ooms),
    String(result.retries),
    `${(result.driver.timeUs / 1e3).toFixed(1)} ms`,
    modelled ? `${(modelled.driver.timeUs / 1e3).toFixed(1)} ms` : '',
    `${(result.driver.steadyTimeUs / 1e3).toFixed(1)} ms`,
    Object.values(result.driver.calls)
      .reduce((sum, calls) => sum + calls, 0)
      .toLocaleString('en-US'),
    `${wallMs.toFixed(0)} ms`,
  ]);
  const recorded = summary.recordedPeakReserved === undefined ? 'unknown' : formatBytes(summary.recordedPeakReserved);
  const head = `GPU ${trace.device}: ${summary.events.toLocaleString('en-US')} events; peak live ${formatBytes(summary.peakLive)}; peak reserved as recorded ${recorded} (${summary.recordedAllocator})`;
  const warnings = trace.warnings.map((warning) => `warning: ${warning.message}`);
  const notes = [
    ...rows.filter((row) => row.result.streams.waits > 0).map(formatWaits),
    ...rows.filter((row) => row.description !== undefined).map(formatRealRun),
  ];
  return `${[head, ...warnings, ...formatTable(columns, cells), ...notes].join('\n')}\n`;
}

/** What lending between streams cost, with streams a little behind the program. */
function formatWaits({ allocator, result: { streams } }: ReplayRow): string {
  return `${allocator} made streams wait ${streams.waits.toLocaleString('en-US')} times for memory of another, ${streams.neededWaits.toLocaleString('en-US')} of them for what was not over yet; streams stood still ${(streams.stallUs / 1e3).toFixed(1)} ms.`;
}

function formatRealRun({ allocator, description, verification }: ReplayRow): string {
  const checked = verification
    ? `${verification.blocks.toLocaleString('en-US')} blocks (${formatBytes(verification.bytes)}) were filled and found unchanged when freed`
    : 'data was not checked';
  return `${allocator} ran on ${description}; ${checked}.`;
}
