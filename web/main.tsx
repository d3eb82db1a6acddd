// The page's entry: finds out how it runs (from a server, as one file, alone) and opens the recordings it finds.
import { render } from 'preact';
import type { AnalysisView } from '../src/view/analysis-view.ts';
import { wantedByAddress } from './app/address.ts';
import { App, isDropping } from './app/app.tsx';
import { listenToDrops } from './app/files.ts';
import { listenToKeys } from './app/keyboard.ts';
import { openSource } from './app/opening.ts';
import { type OpenSource, problem, sources } from './app/state.ts';
import { problemOf, ServerConnection, WorkerConnection } from './data/connection.ts';
import { followFeed } from './panels/live-ranks.tsx';
import './style/base.css';
import './style/page.css';
import './style/verdict.css';
import './style/panels.css';
import './style/live.css';
import './style/fit.css';
import './style/narrow.css';
import './style/print.css';
import './app/theme.ts';

interface Served {
  readonly sources: readonly { readonly id: number; readonly name: string }[];
  readonly live: { readonly ranks: readonly string[]; readonly speed: number } | null;
}

async function start(): Promise<void> {
  render(<App />, document.getElementById('app')!);
  listenToKeys();
  listenToDrops((isOver) => {
    isDropping.value = isOver;
  });
  const wanted = wantedByAddress();
  const inside = document.getElementById('weir-recording');
  if (inside) {
    const report = JSON.parse(document.getElementById('weir-report')!.textContent!) as {
      name: string;
      analyses: { gpu: number; analysis: AnalysisView }[];
    };
    const connection = new WorkerConnection({ name: report.name, content: inside.textContent ?? '' });
    const analyses = new Map(report.analyses.map(({ gpu, analysis }) => [gpu, analysis]));
    await openSource({ name: report.name, connection, analyses }, wanted);
    return;
  }
  const served = await askServer();
  if (!served) return;
  const known: OpenSource[] = served.sources.map(({ id, name }) => ({ name, connection: new ServerConnection(id) }));
  sources.value = known;
  if (served.live) {
    followFeed(served.live.ranks);
    return;
  }
  const first = known.find(({ name }) => name === wanted.file) ?? known[0];
  if (first) await openSource(first, wanted);
}

/** The server's recordings; undefined: a plain web host without a server. */
async function askServer(): Promise<Served | undefined> {
  if (!location.protocol.startsWith('http')) return undefined;
  try {
    const response = await fetch('api/sources');
    if (response.status === 401) problem.value = await problemOf(response);
    return response.ok ? ((await response.json()) as Served) : undefined;
  } catch {
    return undefined;
  }
}

void start();
