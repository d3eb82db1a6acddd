// The page of a job that is running, on this machine only; it ends with the job.
import { listenError } from '../run/summary/metrics.ts';
import { RunFeed } from '../run/summary/run-feed.ts';
import type { RunVoice, RunWatcher } from '../run/supervise.ts';
import { HOST, PageServer } from './page-server.ts';

/** Pages are told that the job is over before they are cut off. */
const FAREWELL_MS = 500;

export function servePage(port: number, voice: RunVoice): RunWatcher {
  let feed: RunFeed | undefined;
  let server: PageServer | undefined;
  return {
    async begin(processes) {
      feed = new RunFeed(processes);
      server = new PageServer({ sources: [], live: feed });
      try {
        await server.listen(port);
      } catch (error) {
        throw listenError(error as NodeJS.ErrnoException, port, HOST);
      }
      server.unref();
      // Shown even with --quiet: without the token in it, nobody can open the page.
      voice.trouble(`the job, live: ${server.url}`);
    },
    levels: () => feed?.sample(),
    end() {
      feed?.sample(true);
      server?.close(FAREWELL_MS);
    },
  };
}
