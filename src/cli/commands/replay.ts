// `weir replay FILE`: a recorded run through chosen allocators, with all their settings.

import { Command, Option } from 'commander';
import type { AllocatorContext } from '../../allocator/allocator.ts';
import { formatConf, type PyTorchSettings, parseConf, settingsFromRecording } from '../../allocator/pytorch/settings.ts';
import { type AllocatorChoice, chooseAllocators, pytorchChoice } from '../../allocator/registry.ts';
import { isTouchable } from '../../backend/memory.ts';
import { MIB, parseBytes } from '../../base/bytes.ts';
import { UsageError } from '../../base/errors.ts';
import { withPlan } from '../../plan/steps/planned-choice.ts';
import { BACKEND_NAMES, type BackendName, openBackend } from '../../pool/open-backend.ts';
import { reconstruct } from '../../replay/reconstruct.ts';
import { replay } from '../../replay/replay.ts';
import { scaleTrace } from '../../replay/scale.ts';
import { type Verification, VerifyingAllocator } from '../../replay/verifying-allocator.ts';
import { whatIf, withoutAllocator } from '../../replay/what-if.ts';
import { replayJson } from '../../report/json.ts';
import type { ReplayRow } from '../../report/replay-row.ts';
import { formatReplay } from '../../report/terminal/replay.ts';
import { recordedEngine, summarizeTrace, type TraceSummary } from '../../trace/summary.ts';
import type { Trace } from '../../trace/trace.ts';
import { loadRecording, pickGpus, requireDemand } from '../input.ts';
import {
  ALLOCATOR_HELP,
  allocatorOption,
  asArgument,
  capacityOption,
  gpuOption,
  jsonOption,
  pytorchOption,
  quietOption,
  RECORDING,
} from '../options.ts';
import { createProgress, type Progress } from '../progress.ts';
import { withVersion } from '../pytorch-version.ts';

/** Distance of the words that are verified in a real block. Reading one from a GPU takes ten microseconds. */
const VERIFY_STRIDE = { host: MIB, cuda: 8 * MIB } as const;

interface ReplayOptions {
  readonly allocator?: AllocatorChoice[];
  readonly capacity?: number;
  readonly gpu?: number;
  readonly pytorch?: string;
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
        'Runs every recorded request and free through the chosen allocators. Shows what each one reserves, how often it fails, and the cost of its driver calls.',
      )
      .argument('<file>', RECORDING)
      .addOption(allocatorOption('allocators to run (default: the recorded one and expandable)'))
      .addOption(capacityOption())
      .addOption(gpuOption())
      .addOption(pytorchOption())
      .addOption(
        new Option('--backend <kind>', 'where memory comes from: simulated, real host memory, or a GPU')
          .choices(BACKEND_NAMES)
          .default('sim'),
      )
      // The name that --backend had in version 0.1.
      .addOption(new Option('--device <kind>').choices(BACKEND_NAMES).hideHelp())
      .addOption(
        new Option('--scale <factor>', 'multiply every request by this, like 1/64, to fit real memory')
          .argParser(asArgument(parseScale))
          .default(1, '1'),
      )
      .option('--no-verify', 'on real memory, do not fill each block and compare it when it is freed')
      .option('--conf <string>', 'settings for pytorch and expandable, as in PYTORCH_CUDA_ALLOC_CONF')
      .option('--max-split-size <size>', 'max_split_size_mb, as a setting of its own')
      .option('--max-non-split-rounding <size>', 'max_non_split_rounding_mb')
      .option('--large-segment-size <size>', 'large_segment_size_mb')
      .option('--garbage-collection-threshold <share>', 'garbage_collection_threshold')
      .option('--roundup-power2-divisions <n>', 'roundup_power2_divisions: a number or [64:8,256:4,>:1]')
      .option('--memory-fraction <share>', 'set_per_process_memory_fraction; needs --capacity, or a recording with the size of its GPU')
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
  const traces = withVersion(pickGpus(recording, options.gpu, file), options.pytorch);
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
    else process.stdout.write(formatReplay(trace, summary, rows));
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
  const { emptyCacheBefore, limits, rules } = reconstruct(trace);
  const knownBytes = options.capacity ?? trace.limits.deviceBytes;
  if (choices.some((choice) => choice.conf?.includes('per_process_memory_fraction')) && knownBytes === undefined) {
    throw new UsageError('a memory fraction needs the size of the GPU; add --capacity SIZE');
  }
  // A fraction is one of PyTorch's settings here, so the allocator itself takes it of what the GPU reports.
  const gpu = { capacity: options.capacity, reportedBytes: knownBytes ?? limits.capacity };
  const scaled = scaleTrace(trace, options.scale);
  const floor = options.scale === 1 ? summary.peakDemand : summarizeTrace(scaled).peakDemand;
  const onProgress = (index: number, name: string) => (done: number) =>
    progress.update((index + done) / choices.length, `replaying ${name}`);

  const simulate = (choice: AllocatorChoice, index: number) => {
    const isRecorded = choice.conf === recordedConf && options.scale === 1 && !recordedEngine(trace);
    return whatIf(scaled, choice, gpu, {
      isRecorded,
      emptyCacheBefore,
      rules,
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
        rules,
        checkEvery: options.paranoid ? 1 : 0,
        onProgress: onProgress(index, choice.name),
      });
      return { result: withoutAllocator(result), verification, description: opened.description };
    } finally {
      opened.close();
    }
  };
  return choices.map((choice, index) => {
    const started = performance.now();
    const modelled = simulate(choice, index);
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

/** Reads `1/64` or `0.25`. */
function parseScale(text: string): number {
  const match = /^(\d+(?:\.\d+)?)(?:\/(\d+(?:\.\d+)?))?$/.exec(text.trim());
  const factor = match ? Number(match[1]) / Number(match[2] ?? 1) : Number.NaN;
  if (!(factor > 0) || !Number.isFinite(factor)) throw new UsageError(`'${text}' is not a scale; write it like 1/64`);
  return factor;
}

/** --conf and the flags for single settings, as one configuration string; later ones win. */
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

/** Adds settings if the choice is one of PyTorch's allocators. */
function withConf(choice: AllocatorChoice, conf: string): AllocatorChoice {
  if (conf === '' || choice.conf === undefined) return choice;
  return pytorchChoice(choice.kind === 'expandable' ? 'expandable' : 'pytorch', parseConf(conf, parseConf(choice.conf)));
}
