// The inputs in test/fuzz/corpus, one folder per target. make-corpus.ts makes most of them.
// A name that begins with `defect-` is an input that once showed a defect.
import { readdirSync, readFileSync } from 'node:fs';

export const ROOT: URL = findRoot();
const CORPUS = new URL('test/fuzz/corpus/', ROOT);

export interface CorpusFile {
  readonly name: string;
  readonly bytes: Uint8Array;
}

const loaded = new Map<string, readonly CorpusFile[]>();

/** The files of a target, by name, so that every machine counts them alike. */
export function corpusOf(folder: string): readonly CorpusFile[] {
  const known = loaded.get(folder);
  if (known) return known;
  const names = readdirSync(new URL(`${folder}/`, CORPUS)).sort();
  const files = names.map((name) => ({ name, bytes: new Uint8Array(readFileSync(new URL(`${folder}/${name}`, CORPUS))) }));
  loaded.set(folder, files);
  return files;
}

export function corpusText(folder: string, name: string): string {
  return new TextDecoder().decode(corpusOf(folder).find((file) => file.name === name)!.bytes);
}

// The compiled program lies one folder deeper than its source.
function findRoot(): URL {
  const here = new URL('../../', import.meta.url);
  return here.pathname.endsWith('/build/') ? new URL('../', here) : here;
}
