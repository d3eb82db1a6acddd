// `weir supervise`: what a process that runs without `weir run` starts beside itself (python/weir_gpu/supervisor.py). Not for people.
import { existsSync } from 'node:fs';
import { Command, Option } from 'commander';
import { InputError } from '../../base/errors.ts';
import { attend } from '../../run/attend.ts';
import type { RunSummary } from '../../run/summary/summary.ts';
import { summaryJson } from '../../run/summary/summary-json.ts';
import { formatSummary } from '../../run/summary/summary-text.ts';
import { type RunVoice, writeSummary } from '../../run/supervision.ts';
import { limitOption, planOption, runAllocatorOption, type SupervisionFlags, swapOption, withSupervisionOptions } from '../run-options.ts';
import { createVoice } from '../run-voice.ts';
import { servePage } from '../serve-run.ts';
import { readVersion } from '../version.ts';

interface Flags extends SupervisionFlags {
  readonly folder: string;
  readonly pid: string;
  readonly started: string;
}

export function superviseCommand(): Command {
  return withSupervisionOptions(new Command('supervise'))
    .description('Supervises a process that runs on Weir without weir run, until that process ends.')
    .addOption(new Option('--folder <path>', 'the folder of its rings').makeOptionMandatory())
    .addOption(new Option('--pid <number>', 'the process').makeOptionMandatory())
    .addOption(new Option('--started <ticks>', 'when that process started, as in /proc/PID/stat').makeOptionMandatory())
    .addOption(runAllocatorOption())
    .addOption(limitOption())
    .addOption(planOption())
    .addOption(swapOption())
    .action((flags: Flags) => start(flags));
}

async function start(flags: Flags): Promise<void> {
  if (!existsSync(flags.folder))
    throw new InputError(`there is no folder ${flags.folder}: a process that calls weir_gpu.enable() makes it, and starts this command`);
  // The job may have closed it, or its terminal may be gone.
  process.stderr.on('error', () => {});
  const loud = createVoice({ isQuiet: flags.quiet ?? false, isVerbose: flags.verbose ?? false, isSilent: false });
  // A progress line would run into what the job prints.
  const voice: RunVoice = { ...loud, progress() {}, clearProgress() {} };
  const tell = (summary: RunSummary, isTold = false) => {
    if (flags.jsonFile !== undefined) writeSummary(flags.jsonFile, summaryJson(summary), voice);
    if (!isTold) for (const line of formatSummary({ ...summary, whatIf: new Map() })) voice.say(line);
  };
  const page = flags.serve ? servePage(flags.servePort, voice) : undefined;
  await attend(
    {
      folder: flags.folder,
      job: { pid: Number(flags.pid), started: flags.started },
      allocator: flags.allocator,
      limit: flags.limit,
      record: flags.record,
      force: flags.force ?? false,
      oomDir: flags.oomDir,
      whatIf: flags.whatIf,
      whatIfEvents: flags.whatIfEvents,
      metricsPort: flags.metrics,
      metricsHost: flags.metricsHost,
      plan: flags.plan ?? false,
      swap: flags.swap,
      version: readVersion(),
      environment: process.env,
      replayAtEnd: flags.jsonFile !== undefined,
    },
    voice,
    { farewell: tell, end: (summary, isTold) => tell(summary, isTold) },
    page,
  );
  await page?.farewell();
}
