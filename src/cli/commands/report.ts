// `weir report FILE -o out.html`: the page about one recording as a single file, for mail, tickets and CI.
import { existsSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { Command } from 'commander';
import { formatBytes } from '../../base/bytes.ts';
import { UsageError } from '../../base/errors.ts';
import { SCHEMA } from '../../report/json.ts';
import { readAssets } from '../../server/assets.ts';
import { reportPage } from '../../server/report-page.ts';
import type { Recording } from '../../trace/trace.ts';
import { writeWeir } from '../../trace/weir/writer.ts';
import type { AnalysisView } from '../../view/analysis-view.ts';
import { Session } from '../../view/session.ts';
import { loadRecording } from '../input.ts';
import { capacityOption, jsonOption, pytorchOption, quietOption, RECORDING } from '../options.ts';
import { writeWhole } from '../output.ts';
import { createProgress, type Progress } from '../progress.ts';
import { recordingWithVersion } from '../pytorch-version.ts';
import { readVersion } from '../version.ts';

interface ReportOptions {
  readonly output?: string;
  readonly force?: boolean;
  readonly capacity?: number;
  readonly pytorch?: string;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

export function reportCommand(): Command {
  return new Command('report')
    .summary('write the page as one HTML file')
    .description('Writes the page about a recording as one HTML file that needs no network and no server.')
    .argument('<file>', RECORDING)
    .option('-o, --output <file>', 'the file to write (default: the name of the recording with .html)')
    .option('-f, --force', 'overwrite an existing file')
    .addOption(capacityOption())
    .addOption(pytorchOption())
    .addOption(jsonOption())
    .addOption(quietOption())
    .addHelpText('before', 'Examples:\n  weir report snapshot.pickle -o snapshot.html\n  weir report rank0.pickle --capacity 80GiB -f\n')
    .action(report);
}

async function report(file: string, options: ReportOptions): Promise<void> {
  const to = options.output ?? outputName(file);
  if (!options.force && existsSync(to)) throw new UsageError(`${to} exists; -f overwrites it`);
  const progress = createProgress(options.quiet ?? false);
  const recording = recordingWithVersion(await loadRecording(file, progress), options.pytorch);
  const html = reportPage(readAssets(), {
    name: file === '-' ? 'standard input' : file,
    recording: pack(recording),
    analyses: analyses(recording, file, options, progress),
  });
  progress.clear();
  writeWhole(to, html);
  const bytes = Buffer.byteLength(html);
  if (options.json) process.stdout.write(`${JSON.stringify({ schema: SCHEMA, from: file, to, bytes, gpus: recording.traces.length })}\n`);
  else process.stderr.write(`wrote ${to}: ${formatBytes(bytes)}; open it in a browser\n`);
}

function outputName(file: string): string {
  if (file === '-') throw new UsageError('standard input has no name; name the file to write with -o');
  return `${file.replace(/\.(gz|zst)$/, '').replace(/\.(pickle|pkl|json|weir)$/, '')}.html`;
}

/** One gzip member, since browsers read only the first. */
function pack(recording: Recording): Uint8Array {
  const chunks: Uint8Array[] = [];
  writeWeir(recording, (chunk) => chunks.push(chunk.slice()), { tool: 'weir', version: readVersion() });
  return gzipSync(Buffer.concat(chunks), { level: 9 });
}

function analyses(
  recording: Recording,
  file: string,
  options: ReportOptions,
  progress: Progress,
): { gpu: number; analysis: AnalysisView }[] {
  const session = new Session(recording, file);
  return recording.traces.map(({ device: gpu }) => {
    const question = { method: 'analyze', gpu, capacity: options.capacity } as const;
    const analysis = session.answer(question, ({ fraction, doing }) => progress.update(fraction, `${file}: ${doing}`)) as AnalysisView;
    return { gpu, analysis };
  });
}
