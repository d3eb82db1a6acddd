// `weir convert IN OUT`: writes a recording in the format that the new file's name says.

import { existsSync, renameSync, rmSync, statSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { Command } from 'commander';
import { formatBytes } from '../../base/bytes.ts';
import { InputError, UsageError } from '../../base/errors.ts';
import { dismiss } from '../../base/thread.ts';
import { SCHEMA } from '../../report/json.ts';
import { formatTimes } from '../../report/words/numbers.ts';
import type { ConvertMessage, ConvertTask } from '../convert-worker.ts';
import { jsonOption, quietOption, RECORDING } from '../options.ts';
import { naming, temporaryName } from '../output.ts';
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
      'Writes a recording in another format. The name of the new file chooses it: .weir, or .json for a PyTorch snapshot as JSON. A further .gz packs it.',
    )
    .argument('<in>', RECORDING)
    .argument('<out>', 'the file to write: NAME.weir, NAME.weir.gz, NAME.json or NAME.json.gz')
    .option('-f, --force', 'overwrite an existing file')
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
  if (!format) throw new UsageError(`'${to}' does not say which format to write; end the name in .weir, .json, .weir.gz or .json.gz`);
  if (existsSync(to) && statSync(to).isDirectory()) throw new UsageError(`${to} is a folder; name a file in it`);
  if (!options.force && existsSync(to)) throw new UsageError(`${to} exists; -f overwrites it`);
  const temporary = temporaryName(to);
  const task: ConvertTask = {
    from,
    to,
    temporary,
    format: format[1] as 'weir' | 'json',
    gzip: format[2] !== undefined,
    version: readVersion(),
  };
  const done = await runWorker(task, createProgress(options.quiet ?? false));
  try {
    renameSync(temporary, to);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw naming(error, to);
  }
  if (options.json) {
    const { kind: _, ...figures } = done;
    process.stdout.write(`${JSON.stringify({ schema: SCHEMA, from, to, format: task.format, ...figures })}\n`);
    return;
  }
  process.stderr.write(`wrote ${to}: ${formatTimes(done.events, 'event', 'events')}, ${formatBytes(done.bytes)}\n`);
  if (done.eventsLeftOut > 0) {
    process.stderr.write(
      `${formatTimes(done.eventsLeftOut, 'event was', 'events were')} left out: a PyTorch snapshot cannot hold accesses, record_stream and empty_cache\n`,
    );
  }
}

/** Runs the conversion. If it ends early, the unfinished file is removed. */
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
        else reject(new InputError(message.message.replace(task.temporary, task.to)));
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
