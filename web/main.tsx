// The page's entry: finds out how it runs (from a server, as one file, alone) and opens the recordings it finds.
import { batch } from '@preact/signals';
import { render } from 'preact';
import { type HashState, readHash } from '../src/view/hash-state.ts';
import type { JobOver } from '../src/view/live-sample.ts';
import type { ReportJson } from '../src/view/report-page.ts';
import { listenToAddress, showWantedDifference, wantedByAddress } from './app/address.ts';
import { App, isDropping } from './app/app.tsx';
import { listenToDrops, openSent } from './app/files.ts';
import { listenToKeys } from './app/keyboard.ts';
import { openSource } from './app/opening.ts';
import { isStarting, type OpenSource, problem, sources } from './app/state.ts';
import { problemOf, ServerConnection, WorkerConnection } from './data/connection.ts';
import { followRanks, noteRank, openFirstRank } from './job/job-state.ts';
import { followFeed } from './job/live-state.ts';
import { atWantedValues } from './values/value-state.ts';
import './style/base.css';
import './style/page.css';
import './style/verdict.css';
import './style/panels.css';
import './style/tracks.css';
import './style/live.css';
import './style/fit.css';
import './style/job.css';
import './style/values.css';
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
  listenToAddress();
  listenToDrops((isOver) => {
    isDropping.value = isOver;
  });
  const wanted = wantedByAddress();
  const inside = document.getElementById('weir-report')?.textContent;
  if (inside) {
    isStarting.value = false;
    await openInside(JSON.parse(inside) as ReportJson, wanted);
    return;
  }
  const served = await askServer();
  const known: OpenSource[] = served?.sources.map(({ id, name }) => ({ name, connection: new ServerConnection(id, name) })) ?? [];
  batch(() => {
    sources.value = known;
    isStarting.value = false;
  });
  if (!served) return;
  if (served.live) followFeed(served.live.ranks, known.length > 0, (over) => void openAtEnd(over, known));
  else await openServed(known, wanted);
}

/** A page that is one file. Its view is that of its address, or the one that it was saved with. */
async function openInside(report: ReportJson, wanted: HashState): Promise<void> {
  const contents = document.querySelectorAll('.weir-recording');
  const known = report.recordings.map(({ name, analyses, isKept }, index): OpenSource => {
    const connection = new WorkerConnection({ name, content: contents[index]?.textContent ?? '' });
    return { name, connection, isKept, analyses: new Map(analyses.map(({ gpu, analysis }) => [gpu, analysis])) };
  });
  sources.value = known;
  for (const [index, { ranks, problem }] of report.recordings.entries())
    noteRank(known[index]!, ranks ? { ranks } : { problem: problem ?? 'this page does not hold it' });
  const shown = location.hash === '' ? readHash(report.hash) : wanted;
  const named = known.find(({ name, isKept }) => name === shown.file && isKept) ?? (known.length === 1 ? known[0] : undefined);
  if (named) await openSource(named, shown);
  else openFirstRank();
  if (shown.left) showWantedDifference(shown);
}

/** One recording is opened. Of several, the one that the address names, or the one to look at first. */
async function openServed(known: readonly OpenSource[], wanted: HashState): Promise<void> {
  const [only] = known;
  if (!only) return;
  if (known.length === 1) {
    const source = atWantedValues(only, wanted);
    sources.value = [source];
    await openSource(source, wanted);
    if ((source.info?.gpus.length ?? 1) > 1) noteRank(source, { ranks: await source.connection.ask('ranks', 0, {}) });
    return;
  }
  const named = known.find(({ name }) => name === wanted.file);
  if (named) void openSource(named, wanted);
  await followRanks(known);
  openFirstRank();
  if (wanted.left) showWantedDifference(wanted);
}

/** The job has ended: opens the rank that failed, or the worst, from the server's recordings or from what the server sends. */
async function openAtEnd({ opens }: JobOver, known: readonly OpenSource[]): Promise<void> {
  if (!opens) return;
  if ('source' in opens) {
    const source = known[opens.source];
    if (source) await openSource(source, { gpu: opens.gpu });
    return;
  }
  try {
    const response = await fetch('api/live/recording');
    if (!response.ok) throw new Error(await problemOf(response));
    await openSent(await response.blob(), opens.name, opens.gpu);
  } catch {
    problem.value = `${opens.name}: the server ended before the recording was here`;
  }
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
