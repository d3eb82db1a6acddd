// `weir plan FILE`: offsets for a step, or swaps to host memory; -o writes them to a plan file.
import { existsSync } from 'node:fs';
import { Command, Option } from 'commander';
import { InputError, InvariantError, UsageError } from '../../base/errors.ts';
import { type PlanFile, swapPlanFile, writePlan } from '../../plan/files/plan-file.ts';
import { type PlanInput, swapStepFrom } from '../../plan/files/plan-input.ts';
import { buffersOfStep } from '../../plan/steps/step.ts';
import { findStep } from '../../plan/steps/step-plan.ts';
import { verifyStepPlan } from '../../plan/steps/verifier.ts';
import { AUTOSWAP_COPIES, type CopyCosts, copyCosts, H200_COPIES } from '../../plan/swaps/copy-costs.ts';
import { planSwapStep } from '../../plan/swaps/planner.ts';
import { notPeriodicJson, offsetsJson, stepPlanJson, swapPlanJson } from '../../report/json.ts';
import { offsetsFacts, stepFacts, swapFacts } from '../../report/plan.ts';
import { formatNotPeriodic, formatPlan } from '../../report/terminal/plan.ts';
import { layoutPicture, loadPicture } from '../../report/terminal/plan-picture.ts';
import { noSwapPlanWords } from '../../report/words/plan.ts';
import { shellWord } from '../../report/words/shell.ts';
import { LIVE_UNIT } from '../../trace/summary.ts';
import { ExitCode } from '../exit-code.ts';
import { asArgument, capacityOption, gpuOption, jsonOption, parsePositive, quietOption } from '../options.ts';
import { writeWhole } from '../output.ts';
import { loadPlanInput } from '../plan-files.ts';
import { planOffsetsInWorkers } from '../plan-workers.ts';
import { createProgress, type Progress } from '../progress.ts';

interface PlanOptions {
  readonly swap?: boolean;
  readonly limit?: number;
  readonly link: 'h200' | 'autoswap';
  readonly bandwidth?: number;
  readonly bandwidthBoth?: number;
  readonly capacity?: number;
  readonly budget: number;
  readonly threads?: number;
  readonly gpu?: number;
  readonly output?: string;
  readonly force?: boolean;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

/** What the command prints, and the plan itself if there is one. */
interface Answer {
  readonly text: string;
  readonly json: object;
  readonly plan: PlanFile | undefined;
  /** If there is no plan: why, where the text does not say so. */
  readonly reason?: string | undefined;
}

export function planCommand(): Command {
  return new Command('plan')
    .summary('plan offsets for a step, or swaps to host memory')
    .description(
      'Finds the step that a recorded run repeats, and plans an offset for every block of it. With --swap: plans which blocks move to host memory, and when. Every plan is verified. Exit code 1: there is no plan.',
    )
    .argument('<file>', 'a recording (snapshot or .weir), buffers as CSV (id,lower,upper,size), or recorded accesses; plain, gzip or zstd')
    .option('--swap', 'plan swaps; needs a recording with the reads and writes of each operator')
    .addOption(
      new Option('--limit <size>', 'with --swap: the memory limit, instead of the lowest one that costs no time').argParser(
        asArgument(parsePositive),
      ),
    )
    .addOption(new Option('--link <name>', 'with --swap: the link that copies use').choices(['h200', 'autoswap']).default('h200'))
    .addOption(
      new Option('--bandwidth <size>', 'with --swap: bytes per second in one direction, like 25GB (default: 55GB, an H200)').argParser(
        asArgument(parsePositive),
      ),
    )
    .addOption(
      new Option('--bandwidth-both <size>', 'with --swap: bytes per second in each direction while both are busy').argParser(
        asArgument(parsePositive),
      ),
    )
    .addOption(capacityOption())
    .addOption(new Option('--budget <seconds>', 'time for the search').argParser(asArgument(parseSeconds)).default(3))
    .addOption(new Option('--threads <n>', 'threads for the search (default: all cores)').argParser(asArgument(parseThreads)))
    .addOption(gpuOption())
    .option('-o, --output <plan>', 'write the plan to this file')
    .option('-f, --force', 'overwrite an existing file')
    .addOption(jsonOption())
    .addOption(quietOption())
    .addHelpText(
      'before',
      `Examples:
  weir plan snapshot.pickle -o step.plan
  weir plan trace.weir --swap --limit 24GiB
`,
    )
    .action(plan);
}

async function plan(file: string, options: PlanOptions): Promise<void> {
  for (const flag of ['limit', 'bandwidth', 'bandwidthBoth'] as const) {
    if (options[flag] !== undefined && !options.swap)
      throw new UsageError(`--${flag.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)} needs --swap`);
  }
  const progress = createProgress(options.quiet ?? false);
  const input = await loadPlanInput(file, { command: 'plan', swap: options.swap ?? false, gpu: options.gpu }, progress);
  const answer = options.swap ? planSwapsOf(input, options, progress) : await planOffsetsOf(input, options, progress);
  progress.clear();
  if (options.output !== undefined && answer.plan) writePlanFile(options.output, answer.plan, options.force ?? false);
  process.stdout.write(options.json ? `${JSON.stringify(answer.json)}\n` : answer.text);
  if (!answer.plan) {
    // A script that uses the file next must not go on.
    const unwritten = options.output === undefined ? [] : [`${options.output} was not written: there is no plan`];
    for (const line of [...(answer.reason ? [answer.reason] : []), ...unwritten]) process.stderr.write(`weir: ${line}\n`);
    process.exitCode = ExitCode.RuleBroken;
  } else if (options.output !== undefined) {
    process.stderr.write(`wrote ${options.output}; to check it: weir verify ${shellWord(options.output)} ${shellWord(file)}\n`);
  }
}

async function planOffsetsOf(input: PlanInput, options: PlanOptions, progress: Progress): Promise<Answer> {
  const search = {
    capacity: options.capacity,
    budgetMs: options.budget * 1000,
    threads: options.threads,
    onProgress: ({ footprint, lowerBound, elapsedMs, by }: { footprint: number; lowerBound: number; elapsedMs: number; by: string }) =>
      progress.update(
        Math.min(1, elapsedMs / (options.budget * 1000)),
        `${(footprint / lowerBound).toFixed(4)} of the lower bound, by ${by}`,
      ),
  };
  if (input.kind === 'buffers') {
    const found = await planOffsetsInWorkers(input.buffers, search);
    const facts = offsetsFacts(input.buffers.length, found);
    return {
      text: formatPlan(facts, layoutPicture(input.buffers, found)),
      json: offsetsJson(facts),
      plan: { kind: 'offsets', buffers: input.buffers, layout: { offsets: found.offsets, footprint: found.footprint } },
    };
  }
  if (input.kind === 'accesses') throw new InputError('this file holds accesses, which are for planning swaps; add --swap');
  const found = findStep(input.ops);
  if (!found.periodic) return { text: formatNotPeriodic(found), json: notPeriodicJson(found), plan: undefined };
  const buffers = buffersOfStep(found.step, LIVE_UNIT);
  const offsets = await planOffsetsInWorkers(buffers, search);
  const { footprint, lowerBound } = offsets;
  const stepPlan = { step: found.step, layout: { offsets: offsets.offsets, footprint }, lowerBound };
  // The planner verified one step; this verifies step after step.
  const [fault] = verifyStepPlan(stepPlan);
  if (fault) throw new InvariantError(`the planner made a wrong plan: ${fault.message}`);
  const facts = stepFacts(found, offsets);
  return {
    text: formatPlan(facts, layoutPicture(buffersOfStep(found.step, 1), offsets)),
    json: stepPlanJson(facts),
    plan: { kind: 'step', plan: stepPlan },
  };
}

function planSwapsOf(input: PlanInput, options: PlanOptions, progress: Progress): Answer {
  if (input.kind !== 'accesses') throw new InputError('--swap needs the reads and writes of each operator, and this file has none');
  progress.update(0, 'planning swaps');
  const costs = costsFrom(options);
  const step = swapStepFrom(input.recording);
  const found = planSwapStep(step, {
    costs,
    limit: options.limit,
    budgetMs: options.budget * 1000,
    offsetsBudgetMs: options.budget * 1000,
  });
  const facts = swapFacts(step, found);
  return {
    text: formatPlan(facts, found.verified ? loadPicture(step, found) : []),
    json: swapPlanJson(facts),
    plan: found.verified ? swapPlanFile(step, found, costs) : undefined,
    reason: found.verified ? undefined : noSwapPlanWords(facts),
  };
}

function costsFrom({ link, bandwidth, bandwidthBoth }: PlanOptions): CopyCosts {
  if (bandwidth === undefined && bandwidthBoth === undefined) return link === 'autoswap' ? AUTOSWAP_COPIES : H200_COPIES;
  const alone = bandwidth ?? bandwidthBoth!;
  return copyCosts('given', alone, bandwidthBoth ?? alone, H200_COPIES.out.fixedUs);
}

function writePlanFile(path: string, file: PlanFile, force: boolean): void {
  if (!force && existsSync(path)) throw new UsageError(`${path} exists; -f overwrites it`);
  writeWhole(path, writePlan(file));
}

function parseSeconds(text: string): number {
  const seconds = Number(text);
  if (text.trim() === '' || !(seconds >= 0) || seconds > 86_400) throw new UsageError(`'${text}' is not a number of seconds`);
  return seconds;
}

function parseThreads(text: string): number {
  const threads = Number(text);
  if (!Number.isInteger(threads) || threads < 1 || threads > 256) throw new UsageError(`'${text}' is not a number of threads`);
  return threads;
}
