// Shared by the planner benchmarks: reading public data from beside the repository, and writing results.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';
import { provenanceOf } from './provenance.ts';

// The compiled benchmarks lie in build/bench, one folder deeper than their sources.
const HERE = new URL('./', import.meta.url);
const ROOT = HERE.pathname.includes('/build/') ? new URL('../../', HERE) : new URL('../', HERE);

/** The text of a file of ../shared, unpacked. Returns undefined, and says so on stderr, if it is not there. */
export function readShared(path: string): string | undefined {
  const url = new URL(`../shared/${path}`, ROOT);
  if (!existsSync(url)) {
    console.error(
      `${fileURLToPath(url)} is not there: this part needs the benchmark data of shared/bench and shared/traces beside the repository.`,
    );
    return undefined;
  }
  const bytes = readFileSync(url);
  return (path.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString();
}

export interface Table {
  readonly title: string;
  readonly columns: readonly string[];
  readonly rows: readonly (readonly (string | number)[])[];
}

/** Prints tables and writes them to bench/results, as Markdown and with the raw numbers as JSON. */
export function keepResults(name: string, tables: readonly Table[], raw: object): void {
  const markdown = tables.map(toMarkdown).join('\n\n');
  const source = provenanceOf(`node build/bench/${process.argv[1]?.split('/').at(-1)} ${process.argv.slice(2).join(' ')}`.trim());
  const head = `${source.date}, ${source.hardware}, \`${source.command}\``;
  console.log(`${markdown}\n\n${head}`);
  const folder = new URL('bench/results/', ROOT);
  mkdirSync(folder, { recursive: true });
  writeFileSync(new URL(`${name}.json`, folder), `${JSON.stringify({ ...source, ...raw }, undefined, 2)}\n`);
  writeFileSync(new URL(`${name}.md`, folder), `${head}\n\n${markdown}\n`);
}

function toMarkdown({ title, columns, rows }: Table): string {
  const line = (cells: readonly (string | number)[]) => `| ${cells.join(' | ')} |`;
  return [`### ${title}`, '', line(columns), line(columns.map(() => '---')), ...rows.map(line)].join('\n');
}
