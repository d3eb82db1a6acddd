// The page of a running job, on this machine only. It ends with the job.
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { getRequestListener } from '@hono/node-server';
import { listenError } from '../run/summary/metrics.ts';
import { RunFeed } from '../run/summary/run-feed.ts';
import type { RunVoice, RunWatcher } from '../run/supervise.ts';
import { createApp } from '../server/app.ts';
import { readAssets } from '../server/assets.ts';
import { LOCAL_HOST } from './options.ts';

export function servePage(port: number, voice: RunVoice): RunWatcher {
  let feed: RunFeed | undefined;
  let server: Server | undefined;
  return {
    async begin(processes) {
      feed = new RunFeed(processes);
      const app = createApp({ assets: readAssets(), sources: [], live: feed });
      const listening = createServer(getRequestListener(app.fetch));
      server = listening;
      await new Promise<void>((resolve, reject) => {
        listening.once('error', (error: NodeJS.ErrnoException) => reject(listenError(error, port, LOCAL_HOST)));
        listening.listen(port, LOCAL_HOST, resolve);
      });
      listening.unref();
      voice.say(`live page: http://${LOCAL_HOST}:${(listening.address() as AddressInfo).port}/`);
    },
    levels: () => feed?.sample(),
    end() {
      feed?.sample(true);
      // Pages hear that the job is over before their connections close.
      setTimeout(() => server?.closeAllConnections(), 500).unref();
      server?.close();
    },
  };
}
