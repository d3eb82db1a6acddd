// The page of a running job, on this machine only. It ends with the job.
import { listenError } from '../run/summary/metrics.ts';
import { RunFeed } from '../run/summary/run-feed.ts';
import type { RunVoice, RunWatcher } from '../run/supervision.ts';
import { LOCAL_HOST } from './options.ts';
import { PageServer } from './page-server.ts';

/** So long pages may take to ask for the recording, and so long to get it. */
const MOST_ASKING_MS = 10_000;
const MOST_SENDING_MS = 60_000;
/** Pages hear that the job is over before their connections close. */
const FAREWELL_MS = 500;

export interface RunPage extends RunWatcher {
  /** Waits until the pages that follow the job have the recording that they open. Nobody waits if there is no page. */
  farewell(): Promise<void>;
}

export function servePage(port: number, voice: RunVoice): RunPage {
  let feed: RunFeed | undefined;
  let server: PageServer | undefined;
  return {
    async begin(processes) {
      feed = new RunFeed(processes);
      server = new PageServer({ sources: [], live: feed });
      try {
        await server.listen(port);
      } catch (error) {
        throw listenError(error as NodeJS.ErrnoException, port, LOCAL_HOST);
      }
      server.unref();
      // Shown even with --quiet: without the token in it, nobody can open the page.
      voice.trouble(`live page: ${server.url}`);
    },
    levels: () => feed?.sample(),
    end: (how) => feed?.end(how),
    async farewell() {
      if (feed && server) await feed.untilSent(MOST_ASKING_MS, MOST_SENDING_MS);
      server?.close(FAREWELL_MS);
    },
  };
}
