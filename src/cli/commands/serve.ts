// `weir serve [FILE...]`: the page about recordings, on this machine only. --live plays them back like a running job.
import { statSync } from 'node:fs';
import { Command, InvalidArgumentError, Option } from 'commander';
import { InputError, UsageError } from '../../base/errors.ts';
import type { Source } from '../../server/app.ts';
import { Playback, type PlayedRank } from '../../server/live-feed.ts';
import { ranTogether } from '../../view/job-order.ts';
import { type Calls, type Method, type Question, RECORDED } from '../../view/protocol.ts';
import { decodeAnswer } from '../../view/wire.ts';
import { type JobFile, JobFiles } from '../job-files.ts';
import { OpenSources } from '../open-sources.ts';
import { parsePort, pytorchOption, quietOption } from '../options.ts';
import { PageServer } from '../page-server.ts';
import { isFolder, recordingsIn, withoutLinks } from '../rank-folders.ts';
import { serveUntilInterrupted } from '../serving.ts';
import { ViewSource } from '../view-source.ts';

interface ServeOptions {
  readonly port: number;
  readonly open?: boolean;
  readonly live?: boolean;
  readonly speed: number;
  readonly pytorch?: string;
  readonly quiet?: boolean;
}

export function serveCommand(): Command {
  return new Command('serve')
    .summary('show timeline, map and what-if table in a browser')
    .description('Serves a page about recordings, on this machine only. Files dropped onto the page stay in the browser.')
    .argument(
      '[files...]',
      'PyTorch snapshots (pickle or JSON) or .weir files, plain, gzip or zstd, or folders of them; several are the ranks of a job; without one, the page asks for a file',
    )
    .option('-p, --port <port>', 'the port to listen on; 0 chooses a free one', parsePort, 0)
    .option('--open', 'open the page in a browser')
    .option('--live', 'play the recordings back like a running job, one rank per file')
    .addOption(new Option('--speed <factor>', 'with --live: seconds of the job per second').argParser(parseSpeed).default(1))
    .addOption(pytorchOption())
    .addOption(quietOption())
    .addHelpText(
      'before',
      `Examples:
  weir serve snapshot.pickle --open
  weir serve rank*.pickle                      # all ranks of a job on one clock
  weir serve runs/4711                         # the same, of the recordings in a folder
  weir serve rank*.pickle --live --speed 10
`,
    )
    .action(serve);
}

async function serve(files: string[], options: ServeOptions): Promise<void> {
  if (options.live && files.length === 0) throw new UsageError('--live needs a recording to play; name one, or one per rank');
  const found = findFiles(files);
  const opened = new OpenSources(found.map((file) => new ViewSource(file.path, options.pytorch)));
  const sources = opened.sources.map((source, index) => withProblem(source, found[index]!.problem));
  const job = found.length === 0 ? undefined : new JobFiles(found);
  const live = options.live ? await startPlayback(sources, options) : undefined;
  const server = new PageServer({ sources, job, live });
  // The page opens a single recording at once, so read it while the browser starts.
  if (sources.length === 1) sources[0]!.prepare?.();
  await serveUntilInterrupted(server, options);
  live?.stop();
  server.close();
  job?.close();
  opened.close();
}

/** The files that were named, and those in the folders that were named. If some can be read, the others have a problem. */
function findFiles(named: readonly string[]): JobFile[] {
  if (named.includes('-')) throw new UsageError('weir serve reads files, not standard input, since the page reads them more than once');
  const paths = withoutLinks([...new Set(named)]).flatMap((path) =>
    isFolder(path) ? recordingsIn(path).map((file) => file.path) : [path],
  );
  const files = [...new Set(paths)].map((path) => ({ path, name: path, problem: problemOf(path) }));
  const problems = files.flatMap(({ problem }) => problem ?? []);
  if (files.length > 0 && problems.length === files.length) throw new InputError(problems[0]!);
  for (const problem of problems) process.stderr.write(`weir: ${problem}; the other recordings are served\n`);
  return files;
}

function problemOf(file: string): string | undefined {
  const stat = statSync(file, { throwIfNoEntry: false });
  if (!stat) return `${file}: there is no such file`;
  return stat.isDirectory() ? `${file} is a folder; name the snapshot file in it` : undefined;
}

/** A recording that cannot be read answers every question with the reason. */
function withProblem(source: Source, problem: string | undefined): Source {
  return problem === undefined
    ? source
    : { name: source.name, ask: () => Promise.reject(new InputError(problem)), progress: () => undefined };
}

async function startPlayback(sources: readonly Source[], { speed }: ServeOptions): Promise<Playback> {
  const ranks = (await Promise.all(sources.map(playedRanks))).flat();
  // Recordings of different days would be dots on one clock, so each begins at 0.
  return new Playback(ranks.length > 0 && ranTogether(ranks) ? ranks : ranks.map((rank) => ({ ...rank, startUs: 0 })), speed);
}

async function answerOf<Name extends Method>(source: Source, question: Question & { method: Name }): Promise<Calls[Name]['answer']> {
  return decodeAnswer((await source.ask(question)).buffer) as Calls[Name]['answer'];
}

/** Every GPU of a recording is a rank. */
async function playedRanks(source: Source, index: number): Promise<PlayedRank[]> {
  const { gpus } = await answerOf(source, { method: 'describe', gpu: 0 });
  const summaries = await answerOf(source, { method: 'ranks', gpu: 0 });
  return gpus
    .filter((gpu) => gpu.durationUs > 0)
    .map((gpu) => {
      const summary = summaries.find((candidate) => candidate.gpu === gpu.device)!;
      return {
        name: gpus.length > 1 ? `${source.name}, GPU ${gpu.device}` : source.name,
        startUs: summary.startUs,
        durationUs: gpu.durationUs,
        limit: summary.limit,
        origin: { source: index, gpu: gpu.device },
        events: gpu.events,
        oomTimesUs: gpu.ooms.map((oom) => oom.timeUs),
        levels: (from, to, parts) => levelsOf(source, gpu.device, from, to, parts),
      };
    });
}

async function levelsOf(source: Source, gpu: number, from: number, to: number, parts: number): ReturnType<PlayedRank['levels']> {
  const ask = (columns: number, start: number, end: number) =>
    answerOf(source, { method: 'timeline', gpu, run: RECORDED, axis: 'time', from: start, to: end, columns });
  const width = (to - from) / parts;
  const { high } = await ask(parts, from, to);
  // One microsecond from the end of each part: what it ends with.
  const ends = await Promise.all(
    Array.from({ length: parts }, (_, part) => ask(1, from + (part + 1) * width, from + (part + 1) * width + 1)),
  );
  return ends.map((end, part) => ({
    allocated: end.low.allocated[0]!,
    reserved: end.low.reserved[0]!,
    live: end.low.live[0]!,
    highLive: high.live[part]!,
    highReserved: high.reserved[part]!,
  }));
}

function parseSpeed(text: string): number {
  const speed = Number(text);
  if (!(speed > 0 && speed <= 1e6)) throw new InvalidArgumentError('the speed is a number above 0, like 10.');
  return speed;
}
