// Opening files that stay in the browser: by dropping, by choosing, or the example that comes with the page.
import { WorkerBackend } from '../data/source.ts';
import { openSource } from './opening.ts';
import { problem, sources } from './state.ts';

export async function openFiles(files: Iterable<File>): Promise<void> {
  for (const file of files) await openFile(file, file.name);
}

export async function openFile(content: Blob, name: string): Promise<void> {
  const taken = new Set(sources.value.map((source) => source.name));
  let unique = name;
  for (let copy = 2; taken.has(unique); copy++) unique = `${name} (${copy})`;
  const backend = new WorkerBackend({ name: unique, content });
  await openSource({ name: unique, backend });
}

export function pickFile(): void {
  const input = document.createElement('input');
  input.type = 'file';
  input.multiple = true;
  input.onchange = () => void openFiles(input.files ?? []);
  input.click();
}

/** Whether an example lies beside the page; a page that is one file has none. */
export function hasExample(): boolean {
  return location.protocol.startsWith('http');
}

export async function openExample(): Promise<void> {
  try {
    const response = await fetch('example.pickle.gz');
    if (!response.ok) throw new Error(String(response.status));
    await openFile(await response.blob(), 'example: GPT-2 XL on 21 GiB');
  } catch {
    problem.value = 'the example could not be fetched from where this page is served';
  }
}

/** Anywhere on the page is a place to drop. */
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
