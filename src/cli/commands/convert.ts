// `weir convert IN OUT`: a recording in another format, chosen by the new file's name.
import { Command } from 'commander';
import { formatBytes } from '../../base/bytes.ts';
import { UsageError } from '../../base/errors.ts';
import { writeSnapshotJson } from '../../trace/snapshot-json.ts';
import { writeWeir } from '../../trace/weir/writer.ts';
import { loadRecording } from '../input.ts';
import { jsonOption, quietOption } from '../options.ts';
import { openOutput } from '../output.ts';
import { readVersion } from '../program.ts';
import { createProgress } from '../progress.ts';

interface ConvertOptions {
  readonly force?: boolean;
  readonly quiet?: boolean;
  readonly json?: boolean;
}

export function convertCommand(): Command {
  return new Command('convert')
    .summary('write a recording in another format')
    .description(
      'Writes a recording in another format, chosen by the name of the new file: .weir, or .json (a PyTorch snapshot as JSON); with .gz added it is packed.',
    )
    .argument('<in>', 'a PyTorch snapshot (pickle or JSON) or a .weir file, plain, gzip or zstd; - is standard input')
    .argument('<out>', 'the file to write: NAME.weir, NAME.weir.gz, NAME.json or NAME.json.gz')
    .option('-f, --force', 'overwrite the file if it is there')
    .addOption(jsonOption())
    .addOption(quietOption())
    .addHelpText(
      'before',
      'Examples:\n  weir convert snapshot.pickle snapshot.weir\n  weir convert run.weir run.json.gz    # for viewers that read snapshots\n',
    )
    .action(convert);
}

async function convert(from: string, to: string, options: ConvertOptions): Promise<void> {
  const format = /\.(weir|json)(\.gz)?$/.exec(to);
  if (!format) throw new UsageError(`'${to}' does not say which format to write; end it in .weir or .json (or .weir.gz, .json.gz)`);
  const progress = createProgress(options.quiet ?? false);
  const recording = await loadRecording(from, progress);
  progress.clear();
  const output = openOutput(to, { force: options.force ?? false, gzip: format[2] !== undefined });
  let leftOut = 0;
  try {
    if (format[1] === 'weir') writeWeir(recording, (chunk) => output.write(chunk), { tool: 'weir', version: readVersion() });
    else leftOut = writeSnapshotJson(recording, (text) => output.write(Buffer.from(text)));
    await output.finish();
  } catch (error) {
    output.abandon();
    throw error;
  }
  const events = recording.traces.reduce((sum, trace) => sum + trace.events.count, 0);
  if (options.json) {
    process.stdout.write(
      `${JSON.stringify({ schema: 1, from, to, format: format[1], gpus: recording.traces.length, events, eventsLeftOut: leftOut, bytes: output.bytesWritten })}\n`,
    );
    return;
  }
  process.stderr.write(`wrote ${to}: ${events.toLocaleString('en-US')} events, ${formatBytes(output.bytesWritten)}\n`);
  if (leftOut > 0)
    process.stderr.write(
      `${leftOut.toLocaleString('en-US')} events have no place in a PyTorch snapshot and were left out (accesses, record_stream, empty_cache)\n`,
    );
}
