// `weir serve [FILE...]`: the page about recordings, on this machine only. --live plays them back like a running job.
import { spawn } from 'node:child_process';
import { statSync } from 'node:fs';
import { hostname, userInfo } from 'node:os';
import { Command, InvalidArgumentError, Option } from 'commander';
import { InputError, UsageError } from '../../base/errors.ts';
import { Playback, type PlayedRank } from '../../server/live-feed.ts';
import { type Calls, RECORDED } from '../../view/protocol.ts';
import { decodeAnswer } from '../../view/wire.ts';
import { LOCAL_HOST, parsePort, pytorchOption, quietOption } from '../options.ts';
import { PageServer } from '../page-server.ts';
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
    .argument('[files...]', 'PyTorch snapshots (pickle or JSON) or .weir files, plain, gzip or zstd; without one, the page asks for a file')
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
  weir serve rank*.pickle --live --speed 10
`,
    )
    .action(serve);
}

async function serve(files: string[], options: ServeOptions): Promise<void> {
  if (options.live && files.length === 0) throw new UsageError('--live needs a recording to play; name one, or one per rank');
  for (const file of files) checkFile(file);
  const sources = [...new Set(files)].map((file) => new ViewSource(file, options.pytorch));
  const live = options.live ? await startPlayback(sources, options) : undefined;
  const server = new PageServer({ sources, live });
  // The page opens a single recording at once, so read it while the browser starts.
  if (sources.length === 1) sources[0]!.prepare();
  try {
    await server.listen(options.port);
  } catch (error) {
    throw listenError(error as NodeJS.ErrnoException, options.port);
  }
  const { port } = server;
  process.stdout.write(`Weir is at ${server.url}\n`);
  if (!options.quiet) {
    process.stderr.write(
      `from another machine: ssh -L ${port}:${LOCAL_HOST}:${port} ${userName()}@${hostname()}, then open the same address\n`,
    );
    process.stderr.write('whoever has this address can open the page\n');
    process.stderr.write('Ctrl-C stops the server\n');
  }
  if (options.open) openBrowser(server);
  await interrupted();
  live?.stop();
  server.close();
  for (const source of sources) source.close();
}

/** In a container, the user may have a number and no name. */
function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return process.env['USER'] ?? 'USER';
  }
}

function checkFile(file: string): void {
  if (file === '-') throw new UsageError('weir serve reads files, not standard input, since the page reads them more than once');
  const stat = statSync(file, { throwIfNoEntry: false });
  if (!stat) throw new InputError(`${file}: there is no such file`);
  if (stat.isDirectory()) throw new InputError(`${file} is a folder; name the snapshot file in it`);
}

function listenError({ code, message }: NodeJS.ErrnoException, port: number): UsageError {
  if (code === 'EADDRINUSE') return new UsageError(`port ${port} is taken; without -p, weir chooses a free one`);
  return new UsageError(code === 'EACCES' ? `port ${port} needs root; choose one above 1023` : message);
}

async function startPlayback(sources: readonly ViewSource[], { speed }: ServeOptions): Promise<Playback> {
  const ranks = await Promise.all(sources.map(playedRanks));
  return new Playback(ranks.flat(), speed);
}

/** Every GPU of a recording is a rank. */
async function playedRanks(source: ViewSource): Promise<PlayedRank[]> {
  const { gpus } = decodeAnswer((await source.ask({ method: 'describe', gpu: 0 })).buffer) as Calls['describe']['answer'];
  return gpus
    .filter((gpu) => gpu.durationUs > 0)
    .map((gpu) => ({
      name: gpus.length > 1 ? `${source.name}, GPU ${gpu.device}` : source.name,
      durationUs: gpu.durationUs,
      events: gpu.events,
      oomTimesUs: gpu.ooms.map((oom) => oom.timeUs),
      levels: async (from, to, parts) => {
        const ask = async (columns: number, start: number, end: number) =>
          decodeAnswer(
            (await source.ask({ method: 'timeline', gpu: gpu.device, run: RECORDED, axis: 'time', from: start, to: end, columns })).buffer,
          ) as Calls['timeline']['answer'];
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
          highAllocated: high.allocated[part]!,
          highReserved: high.reserved[part]!,
        }));
      },
    }));
}

/** A machine without a browser is no reason to stop: the address has been printed. */
function openBrowser(server: PageServer): void {
  const url = server.ticketUrl();
  const [command, ...parameters] =
    process.platform === 'darwin' ? ['open', url] : process.platform === 'win32' ? ['cmd', '/c', 'start', '', url] : ['xdg-open', url];
  const child = spawn(command!, parameters, { stdio: 'ignore', detached: true });
  child.on('error', () => process.stderr.write(`found no browser to open; open ${server.url} yourself\n`));
  child.unref();
}

function interrupted(): Promise<void> {
  return new Promise((resolve) => {
    process.once('SIGINT', () => resolve()).once('SIGTERM', () => resolve());
  });
}

function parseSpeed(text: string): number {
  const speed = Number(text);
  if (!(speed > 0 && speed <= 1e6)) throw new InvalidArgumentError('the speed is a number above 0, like 10.');
  return speed;
}
