// Saves what the page shows as one HTML file, like `weir report`: the recordings that are shown, the overview of all, and the view.
// Folders of this machine do not come along.
import { signal } from '@preact/signals';
import { stripText } from '../../src/report/strip.ts';
import { writeHash } from '../../src/view/hash-state.ts';
import { plainNames } from '../../src/view/job-names.ts';
import { type PageParts, type ReportRecording, reportPage } from '../../src/view/report-page.ts';
import { currentState } from '../app/address.ts';
import { guarded, main, type OpenSource, other, sources } from '../app/state.ts';
import { comparing, keyOf } from './difference-state.ts';
import { jobRanks, type KnownRanks, knownRanks } from './job-state.ts';

/** How far the file is; undefined: nothing is being saved. */
export const saving = signal<{ doing: string; fraction: number } | undefined>(undefined);

export async function saveView(): Promise<void> {
  const lane = main.value;
  const state = currentState();
  if (!lane || !state || saving.value) return;
  await guarded(async () => {
    saving.value = { doing: 'preparing the file', fraction: 0 };
    try {
      const open = sources.value;
      const names = new Map(plainNames(open.map(({ name }) => name)).map((name, index) => [open[index]!, name]));
      const shown = shownSources();
      const recordings: ReportRecording[] = [];
      for (const source of open) recordings.push(await packed(source, names.get(source)!, shown));
      const hash = writeHash({
        ...state,
        file: open.length > 1 ? names.get(lane.source) : undefined,
        with: renamed(state.with, names),
        left: renamedKey(state.left, names),
        right: renamedKey(state.right, names),
      });
      const name = names.get(lane.source)!;
      download(await reportPage(await ownParts(), { title: name, hash, recordings }), `${withoutEnding(name)}.html`);
    } finally {
      saving.value = undefined;
    }
  });
}

/** The recordings of both lanes and of the difference. */
function shownSources(): ReadonlyMap<OpenSource, number> {
  const shown = new Map<OpenSource, number>();
  const { left, right } = comparing.value ?? {};
  for (const rank of jobRanks.value) if (keyOf(rank) === left || keyOf(rank) === right) shown.set(rank.source, rank.summary?.gpu ?? 0);
  for (const lane of [other.value, main.value]) if (lane) shown.set(lane.source, lane.gpu.device);
  return shown;
}

async function packed(source: OpenSource, name: string, shown: ReadonlyMap<OpenSource, number>): Promise<ReportRecording> {
  const gpu = shown.get(source);
  const known = knownRanks.value.get(source);
  if (gpu === undefined || source.isKept === false)
    return { name, recording: undefined, ...strippedOf(known, source.name, name), analyses: [] };
  const answer = await source.connection.ask('pack', gpu, { name }, ({ doing, fraction }) => {
    saving.value = { doing: `${name}: ${doing}`, fraction };
  });
  saving.value = { doing: `compressing ${name}`, fraction: 1 };
  return { name, recording: await gzip(answer.bytes), ranks: answer.ranks, analyses: answer.analyses };
}

/** What is known of a recording that does not come along. */
function strippedOf(known: KnownRanks | undefined, path: string, name: string): Pick<ReportRecording, 'ranks' | 'problem'> {
  if (!known) return { ranks: undefined };
  return 'ranks' in known ? known : { ranks: undefined, problem: stripText(known.problem.replaceAll(path, name)) };
}

function renamed(what: string | undefined, names: ReadonlyMap<OpenSource, string>): string | undefined {
  if (!what?.startsWith('file:')) return what;
  const source = [...names.keys()].find(({ name }) => name === what.slice(5));
  return source ? `file:${names.get(source)}` : undefined;
}

function renamedKey(key: string | undefined, names: ReadonlyMap<OpenSource, string>): string | undefined {
  const rank = jobRanks.value.find((candidate) => keyOf(candidate) === key);
  return rank && keyOf({ ...rank, source: { ...rank.source, name: names.get(rank.source)! } });
}

async function gzip(bytes: Uint8Array): Promise<Uint8Array> {
  const packed = new Blob([bytes as Uint8Array<ArrayBuffer>]).stream().pipeThrough(new CompressionStream('gzip'));
  return new Uint8Array(await new Response(packed).arrayBuffer());
}

/** The page's own scripts and styles: from its server, or from inside a page that is one file. */
async function ownParts(): Promise<PageParts> {
  const worker = document.getElementById('weir-worker')?.textContent;
  if (worker === null || worker === undefined) {
    const [script, style, own, icon] = await Promise.all(['app.js', 'app.css', 'worker.js', 'icon.svg'].map(text));
    return { script: script!, style: style!, worker: own!, icon: icon! };
  }
  const icon = document.querySelector('link[rel=icon]')?.getAttribute('href') ?? '';
  return {
    script: document.querySelector('script:not([type])')?.textContent ?? '',
    style: document.querySelector('style')?.textContent ?? '',
    worker,
    icon: atob(icon.slice(icon.indexOf(',') + 1)),
  };
}

async function text(path: string): Promise<string> {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return response.text();
}

function withoutEnding(name: string): string {
  return name
    .replace(/\.(gz|zst)$/, '')
    .replace(/\.(pickle|pkl|json|weir)$/, '')
    .replace(/[^\w.-]+/g, '-');
}

function download(html: string, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([html], { type: 'text/html' }));
  link.download = name;
  link.click();
  // The browser has started to write it by then.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
