// `weir convert IN OUT`: a recording in another format, chosen by the new file's name.
import { existsSync, renameSync, rmSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { Command } from 'commander';
import { formatBytes } from '../../base/bytes.ts';
import { InputError, UsageError } from '../../base/errors.ts';
import { dismiss } from '../../base/thread.ts';
import { SCHEMA } from '../../report/json.ts';
import type { ConvertMessage, ConvertTask } from '../convert-worker.ts';
import { jsonOption, quietOption } from '../options.ts';
import { createProgress, type Progress } from '../progress.ts';
import { readVersion } from '../version.ts';

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
  if (!options.force && existsSync(to)) throw new UsageError(`${to} is already there; -f overwrites it`);
  // The file is whole or not there: it has another name until it is finished.
  const temporary = `${to}.${process.pid}.part`;
  const task: ConvertTask = {
    from,
    temporary,
    format: format[1] as 'weir' | 'json',
    gzip: format[2] !== undefined,
    version: readVersion(),
  };
  const done = await runWorker(task, createProgress(options.quiet ?? false));
  renameSync(temporary, to);
  if (options.json) {
    const { kind: _, ...figures } = done;
    process.stdout.write(`${JSON.stringify({ schema: SCHEMA, from, to, format: task.format, ...figures })}\n`);
    return;
  }
  process.stderr.write(`wrote ${to}: ${done.events.toLocaleString('en-US')} events, ${formatBytes(done.bytes)}\n`);
  if (done.eventsLeftOut > 0) {
    process.stderr.write(
      `${done.eventsLeftOut.toLocaleString('en-US')} events have no place in a PyTorch snapshot and were left out (accesses, record_stream, empty_cache)\n`,
    );
  }
}

/** Runs the conversion; whatever ends it early, the unfinished file goes. */
async function runWorker(task: ConvertTask, progress: Progress): Promise<ConvertMessage & { kind: 'done' }> {
  const worker = new Worker(new URL('../convert-worker.js', import.meta.url), { workerData: task });
  const interrupted = (signal: NodeJS.Signals) => {
    rmSync(task.temporary, { force: true });
    process.off('SIGINT', interrupted).off('SIGTERM', interrupted);
    process.kill(process.pid, signal);
  };
  process.once('SIGINT', interrupted).once('SIGTERM', interrupted);
  try {
    return await new Promise((resolve, reject) => {
      worker.on('message', (message: ConvertMessage) => {
        if (message.kind === 'progress') progress.update(message.fraction, message.doing);
        else if (message.kind === 'done') resolve(message);
        else reject(new InputError(message.message));
      });
      worker.on('error', reject);
    });
  } catch (error) {
    rmSync(task.temporary, { force: true });
    throw error;
  } finally {
    progress.clear();
    process.off('SIGINT', interrupted).off('SIGTERM', interrupted);
    dismiss(worker);
  }
}
