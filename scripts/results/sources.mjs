// Reads the committed results of benchmarks: the newest file of a family, its tables or its JSON, and where it came from.
import { readdirSync, readFileSync } from 'node:fs';

const FOLDER = new URL('../../bench/results/', import.meta.url);
const runs = JSON.parse(readFileSync(new URL('runs.json', FOLDER), 'utf8'));
export const allFiles = readdirSync(FOLDER).filter((name) => name !== 'runs.json');

const readText = (name) => readFileSync(new URL(name, FOLDER), 'utf8');

/** Files like `FAMILY-2026-11-16.EXT`, or `FAMILY.EXT` alone; the newest first. */
function filesOf(family, extension) {
  const pattern = new RegExp(`^${family}(-\\d{4}-\\d\\d-\\d\\d)?\\.${extension}$`);
  const found = allFiles.filter((name) => pattern.test(name)).sort();
  if (found.length === 0) throw new Error(`bench/results has no ${family}-DATE.${extension}`);
  return found.reverse();
}

/** The newest JSON of a family. */
export function newestJson(family) {
  const [file] = filesOf(family, 'json');
  return { file, data: JSON.parse(readText(file)) };
}

/** The newest text of a family. */
export function newestText(family) {
  const [file] = filesOf(family, 'txt');
  return { file, text: readText(file) };
}

/** A table under a heading that contains `heading`, from the newest Markdown file of the family that has it. */
export function newestTable(family, heading, index = 0) {
  for (const file of filesOf(family, 'md')) {
    const sections = readText(file).split(/^(?=#{1,3} )/m);
    const section = sections.find((text) => text.split('\n', 1)[0].includes(heading));
    const tables = section?.match(/(?:^\|.*\n?)+/gm) ?? [];
    if (tables[index]) return { file, ...parseTable(tables[index], file) };
  }
  throw new Error(`no ${family}-DATE.md in bench/results has table ${index + 1} under '${heading}'`);
}

function parseTable(text, file) {
  const lines = text.trimEnd().split('\n');
  const cells = lines.map((line) =>
    line
      .replace(/^\|\s*|\s*\|$/g, '')
      .split(/\s*\|\s?/)
      .map((cell) => cell.trim()),
  );
  const [columns, , ...rows] = cells;
  return {
    columns,
    rows: rows.map((row) => {
      const byName = Object.fromEntries(columns.map((column, at) => [column, row[at] ?? '']));
      return (column) => {
        if (column in byName) return byName[column];
        throw new Error(`${file}: no column '${column}'; there are ${columns.join(', ')}`);
      };
    }),
  };
}

/** What a file shows that no table is made of; nothing for one that a newer file has replaced. */
export const shownBy = (file) => runs[file]?.shows;

/** Outcomes of a part of a run that were printed and not kept in its file. */
export function printedBy(file, part) {
  const noted = { ...runs[file.replace(/\.md$/, '.json')], ...runs[file] };
  return noted.printed?.[part] ?? [];
}

/** When, on what, by which command and with which code a file was made; a part is one of several that a command makes. */
export function provenanceOf(file, part) {
  const twin = file.replace(/\.md$/, '.json');
  const said = allFiles.includes(twin) && twin.endsWith('.json') ? JSON.parse(readText(twin)) : {};
  const noted = { ...runs[twin], ...runs[file] };
  const command = noted.command ?? said.command;
  const made = {
    date: /\d{4}-\d\d-\d\d/.exec(file)?.[0] ?? said.date?.slice(0, 10),
    hardware: noted.hardware ?? said.hardware ?? said.machine,
    by: noted.by ?? (command && `\`${part ? command.replace(/( WORKLOADS) .*/, `$1 ${part}`) : command}\``),
    code: noted.parts?.[part] ?? noted.code ?? said.commit,
  };
  if (noted.older === true || noted.older?.includes(part)) made.code += ' (the code has changed since)';
  const missing = Object.keys(made).filter((key) => made[key] === undefined);
  if (missing.length > 0) throw new Error(`${file} does not say ${missing.join(', ')}; add it to bench/results/runs.json`);
  return made;
}
