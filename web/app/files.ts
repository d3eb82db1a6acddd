// Opens files that stay in the browser: dropped, chosen, or the example of the page.
import { WorkerConnection } from '../data/connection.ts';
import { openSource } from './opening.ts';
import { problem, sources } from './state.ts';

async function openFiles(files: Iterable<File>): Promise<void> {
  for (const file of files) await openFile(file, file.name);
}

async function openFile(content: Blob, name: string): Promise<void> {
  const taken = new Set(sources.value.map((source) => source.name));
  let unique = name;
  for (let copy = 2; taken.has(unique); copy++) unique = `${name} (${copy})`;
  const connection = new WorkerConnection({ name: unique, content });
  await openSource({ name: unique, connection });
}

export function pickFile(): void {
  const input = document.createElement('input');
  input.type = 'file';
  input.multiple = true;
  input.onchange = () => void openFiles(input.files ?? []);
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
    await openFile(await response.blob(), 'example: GPT-2 XL on 21 GiB');
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
    void openFiles(event.dataTransfer?.files ?? []);
  });
}
