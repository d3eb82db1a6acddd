// Opens files that stay in the browser: dropped, chosen, or the example of the page.
import { fileName } from '../../src/view/job-names.ts';
import { WorkerConnection } from '../data/connection.ts';
import { openFirstRank, summariseHere } from '../job/job-state.ts';
import { wantedByAddress } from './address.ts';
import { openSource } from './opening.ts';
import { takeReloaded } from './reloaded.tsx';
import { type OpenSource, problem, sources } from './state.ts';

/** One file is opened. Several are the ranks of a job: all are summarised, then the one to look at is opened. */
export async function openFiles(files: readonly File[]): Promise<void> {
  const opened = files.map((file) => localSource(file, file.name));
  const wanted = takeReloaded(files.map(({ name }) => name)) ? wantedByAddress() : {};
  const [first] = opened;
  if (!first) return;
  if (opened.length === 1) {
    await openSource(first, wanted);
    if (sources.value.length > 1 || (first.info?.gpus.length ?? 1) > 1) await summariseHere(sources.value.filter(({ isLocal }) => isLocal));
    return;
  }
  sources.value = [...sources.value, ...opened];
  const named = opened.find(({ name }) => name === wanted.file);
  if (named) await openSource(named, wanted);
  await summariseHere(opened);
  openFirstRank();
}

/** A recording that the server of a job has sent at its end. */
export async function openSent(content: Blob, name: string, gpu: number): Promise<void> {
  await openSource(localSource(content, name), { gpu });
}

function localSource(content: Blob, name: string): OpenSource {
  const taken = new Set(sources.value.map((source) => source.name));
  let unique = fileName(name);
  for (let copy = 2; taken.has(unique); copy++) unique = `${name} (${copy})`;
  return { name: unique, connection: new WorkerConnection({ name: unique, content }), isLocal: true };
}

export function pickFile(): void {
  const input = document.createElement('input');
  input.type = 'file';
  input.multiple = true;
  input.onchange = () => void openFiles([...(input.files ?? [])]);
  input.click();
}

/** Whether the page has an example; a page that is one file has none. */
export function hasExample(): boolean {
  return location.protocol.startsWith('http');
}

export async function openExample(): Promise<void> {
  try {
    const response = await fetch('example.pickle.gz');
    if (!response.ok) throw new Error(String(response.status));
    const name = 'example: GPT-2 XL on 21 GiB';
    await openSource({ name, connection: new WorkerConnection({ name, content: await response.blob() }) });
  } catch {
    problem.value = 'the server of this page has no example';
  }
}

/** Files can be dropped anywhere on the page. */
export function listenToDrops(onHover: (isOver: boolean) => void): void {
  document.addEventListener('dragover', (event) => {
    event.preventDefault();
    onHover(true);
  });
  document.addEventListener('dragleave', (event) => {
    if (event.relatedTarget === null) onHover(false);
  });
  document.addEventListener('drop', (event) => {
    event.preventDefault();
    onHover(false);
    void openFiles([...(event.dataTransfer?.files ?? [])]);
  });
}
