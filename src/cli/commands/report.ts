// `weir report FILE... -o out.html`: the page about a recording, or about the ranks of a job, as a single file for mail, tickets and CI.
import { existsSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { Command } from 'commander';
import { formatBytes } from '../../base/bytes.ts';
import { UsageError } from '../../base/errors.ts';
import { SCHEMA } from '../../report/json.ts';
import { pageParts, readAssets } from '../../server/assets.ts';
import { jobName, plainNames } from '../../view/job-names.ts';
import { clockOf, rankToOpen } from '../../view/job-order.ts';
import { rankSummaries } from '../../view/job-rank.ts';
import { packRecording } from '../../view/packing.ts';
import { type ReportRecording, reportPage } from '../../view/report-page.ts';
import { loadRecording } from '../input.ts';
import { requireOneInput } from '../input-pieces.ts';
import { capacityOption, jsonOption, pytorchOption, quietOption } from '../options.ts';
import { writeWhole } from '../output.ts';
import { createProgress, type Progress } from '../progress.ts';
import { recordingWithVersion } from '../pytorch-version.ts';
import { isFolder, recordingsIn, withoutLinks } from '../rank-folders.ts';

interface ReportOptions {
  readonly output?: string;
  readonly force?: boolean;
  readonly capacity?: number;
  readonly keepPaths?: boolean;
  readonly pytorch?: string;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

export function reportCommand(): Command {
  return new Command('report')
    .summary('write the page as one HTML file')
    .description(
      'Writes the page about a recording, or about the ranks of a job, as one HTML file that needs no network and no server. Folders of this machine are left out of it: files keep their names.',
    )
    .argument(
      '<files...>',
      'PyTorch snapshots (pickle or JSON) or .weir files, plain, gzip or zstd, or folders of them; - is standard input',
    )
    .option('-o, --output <file>', 'the file to write (default: the name of the recording with .html)')
    .option('-f, --force', 'overwrite an existing file')
    .option('--keep-paths', 'keep the full paths of recordings and source files')
    .addOption(capacityOption())
    .addOption(pytorchOption())
    .addOption(jsonOption())
    .addOption(quietOption())
    .addHelpText(
      'before',
      `Examples:
  weir report snapshot.pickle -o snapshot.html
  weir report rank0.pickle --capacity 80GiB -f
  weir report rank*.pickle -o job.html
`,
    )
    .action(report);
}

async function report(named: string[], options: ReportOptions): Promise<void> {
  const files = [
    ...new Set(withoutLinks(named).flatMap((path) => (isFolder(path) ? recordingsIn(path).map((file) => file.path) : [path]))),
  ];
  requireOneInput(files);
  const to = options.output ?? outputName(files);
  if (!options.force && existsSync(to)) throw new UsageError(`${to} exists; -f overwrites it`);
  const progress = createProgress(options.quiet ?? false);
  const recordings = await packAll(files, options, progress);
  const html = await reportPage(pageParts(readAssets()), {
    title: jobName(recordings.map(({ name }) => name)) ?? jobTitle(files, options),
    hash: '',
    recordings,
  });
  progress.clear();
  writeWhole(to, html);
  const bytes = Buffer.byteLength(html);
  const gpus = recordings.reduce((sum, { ranks }) => sum + (ranks?.length ?? 0), 0);
  const from = files.length === 1 ? files[0] : files;
  if (options.json) process.stdout.write(`${JSON.stringify({ schema: SCHEMA, from, to, bytes, gpus })}\n`);
  else process.stderr.write(`wrote ${to}: ${formatBytes(bytes)}; open it in a browser\n`);
}

/** Only the rank that the page opens first is analysed now: the page analyses others when they are opened. */
async function packAll(files: readonly string[], options: ReportOptions, progress: Progress): Promise<ReportRecording[]> {
  const given = files.map((file) => (file === '-' ? 'standard input' : file));
  const names = options.keepPaths ? given : plainNames(given);
  const load = async (file: string) => recordingWithVersion(await loadRecording(file, progress), options.pytorch);
  const pack = (recording: Awaited<ReturnType<typeof load>>, index: number, gpus: readonly number[]): ReportRecording => {
    const how = { name: names[index]!, keepsPaths: options.keepPaths ?? false, gpus, capacity: options.capacity };
    const packed = packRecording(recording, how, ({ fraction, doing }) => progress.update(fraction, `${files[index]}: ${doing}`));
    return { name: names[index]!, recording: gzipSync(packed.bytes, { level: 9 }), ranks: packed.ranks, analyses: packed.analyses };
  };
  if (files.length === 1) {
    const recording = await load(files[0]!);
    return [
      pack(
        recording,
        0,
        recording.traces.map(({ device }) => device),
      ),
    ];
  }
  const packed: ReportRecording[] = [];
  const ranks = [];
  for (const [index, file] of files.entries()) {
    const recording = await load(file);
    packed.push(pack(recording, index, []));
    for (const summary of rankSummaries(recording)) ranks.push({ index, summary });
  }
  const first = rankToOpen(ranks, clockOf(ranks.map(({ summary }) => summary)));
  if (first && files[first.index] !== '-') packed[first.index] = pack(await load(files[first.index]!), first.index, [first.summary.gpu]);
  return packed;
}

/** Several recordings are called by their folder, unless that would tell about the machine. */
function jobTitle(files: readonly string[], { keepPaths }: ReportOptions): string {
  const folder = keepPaths ? jobName(files) : undefined;
  return folder ?? `${files.length} recordings`;
}

function outputName(files: readonly string[]): string {
  if (files.length > 1) throw new UsageError('several recordings have no name in common; name the file to write with -o');
  const [file = ''] = files;
  if (file === '-') throw new UsageError('standard input has no name; name the file to write with -o');
  return `${file.replace(/\.(gz|zst)$/, '').replace(/\.(pickle|pkl|json|weir)$/, '')}.html`;
}
