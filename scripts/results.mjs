// `npm run results`: builds docs/results.md, and the table in the README, from the committed files in bench/results/.
// `--check` writes nothing and fails if either is not what the files say.
import { readFileSync, writeFileSync } from 'node:fs';
import { GPU_TABLES, MEMORY } from './results/gpu-tables.mjs';
import { PLAN_TABLES, REPLAY_TABLES, SPEED_TABLES } from './results/offline-tables.mjs';
import { allFiles, provenanceOf, shownBy } from './results/sources.mjs';

const ROOT = new URL('../', import.meta.url);

const SECTIONS = [
  ['On a GPU', GPU_TABLES],
  ['In replay, without a GPU', REPLAY_TABLES],
  ['Planning', PLAN_TABLES],
  ['Speed of Weir itself', SPEED_TABLES],
];

const anchorOf = (title) =>
  title
    .toLowerCase()
    .replace(/[^\w\- ]/g, '')
    .replaceAll(' ', '-');

function tableLines({ columns, rows }) {
  const line = (cells) => `| ${cells.join(' | ')} |`;
  for (const row of rows)
    if (row.length !== columns.length) throw new Error(`a row has ${row.length} cells for ${columns.length} columns: ${row}`);
  return [line(columns), line(columns.map(() => '---')), ...rows.map(line)];
}

/** Where a table comes from, in one line. */
function sourceLine(file, part) {
  const { date, hardware, by, code } = provenanceOf(file, part);
  return `Measured ${date} on ${hardware} by ${by}. Code: ${code}. Raw: [${file}](../bench/results/${file})`;
}

const used = new Set();
const stemOf = (file) => file.replace(/\.\w+$/, '');
/** JSON beside Markdown of the same name holds the same run. */
const hasTwin = (file) => file.endsWith('.json') && allFiles.includes(`${stemOf(file)}.md`);

function section({ title, about, part, make }) {
  const table = make();
  if (table.rows.length === 0) throw new Error(`${table.file} has no rows for '${title}'`);
  used.add(table.file);
  return [`### ${title}`, '', about, '', ...tableLines(table), '', sourceLine(table.file, part), ''];
}

function resultsPage() {
  const body = SECTIONS.flatMap(([name, tables]) => [`## ${name}`, '', ...tables.flatMap(section)]);
  const contents = SECTIONS.flatMap(([name, tables]) => [
    `- [${name}](#${anchorOf(name)})`,
    ...tables.map(({ title }) => `  - [${title}](#${anchorOf(title)})`),
  ]);
  const stems = new Set([...used].map(stemOf));
  const others = allFiles.filter((file) => shownBy(file) ?? !stems.has(stemOf(file))).filter((file) => !hasTwin(file));
  return [
    '# Results',
    '',
    'All measured figures of Weir, each with the date, the machine, the command and the version of the code (the commit that brought the result in, unless the result names one). This page is made by `npm run results` from the files in [bench/results](../bench/results/); do not edit it.',
    '',
    '*PyTorch default* is the allocator that PyTorch uses without settings, *expandable_segments* the same with `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`, *Weir* the allocator of `weir run`. *Peak reserved* is the most memory an allocator held, *peak allocated* the most it had handed out (after its own rounding), *peak live* the most that the program needed at once. GB = 10^9 bytes, GiB = 2^30 bytes.',
    '',
    ...contents,
    '',
    ...body,
    '## Other files',
    '',
    ...others.map((file) => `- [${file}](../bench/results/${file}): ${shownBy(file) ?? 'another run'}`),
    '',
  ].join('\n');
}

/** The README with its one table between the markers, if it has them. */
function withTable(readme) {
  const table = MEMORY.make();
  const { date, hardware, by } = provenanceOf(table.file, MEMORY.part);
  const source = `Measured ${date} on ${hardware} by ${by}. [All results](docs/results.md)`;
  // Links within the page lead to it from the README.
  const about = MEMORY.about.replaceAll('](#', '](docs/results.md#');
  const text = [about, '', ...tableLines(table), '', source].join('\n');
  return readme.replace(/(<!-- results -->\n)[\s\S]*?(<!-- \/results -->)/, (_, begin, end) => `${begin}${text}\n${end}`);
}

const isCheck = process.argv.includes('--check');
const outputs = [
  ['docs/results.md', () => resultsPage()],
  ['README.md', withTable],
];
for (const [path, make] of outputs) {
  const url = new URL(path, ROOT);
  let before = '';
  try {
    before = readFileSync(url, 'utf8');
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
  }
  const after = make(before);
  if (after === before) continue;
  if (isCheck) {
    process.stderr.write(`${path} is not what bench/results says: run \`npm run results\`\n`);
    process.exitCode = 1;
  } else {
    writeFileSync(url, after);
  }
}
