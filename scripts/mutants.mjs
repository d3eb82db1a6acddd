// Changes one line at a time (scripts/mutants.json) in a copy of the sources and runs the tests that should notice.
// `npm run mutants -- [TEXT...] [--write FILE]` runs those whose name or file contains a TEXT, and writes the table to FILE.
// `--stale` runs nothing: it names the mutants whose line is not in the sources any more, or more than once.
import { spawn } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
/** What tests need that import sources: no built command, no documentation. */
const COPIED = [
  'abi',
  'build/abi',
  'engine',
  'native',
  'scripts',
  'src',
  'test',
  'samples',
  'package.json',
  'package-lock.json',
  'tsconfig.base.json',
  'tsconfig.json',
  'vitest.config.ts',
];
/** A mutant may loop for ever. */
const MOST_SECONDS = 180;

const { values, positionals } = parseArgs({ allowPositionals: true, options: { write: { type: 'string' }, stale: { type: 'boolean' } } });
const all = JSON.parse(readFileSync(join(root, 'scripts/mutants.json'), 'utf8'));
const chosen = all.filter(
  ({ name, file }) => positionals.length === 0 || positionals.some((text) => name.includes(text) || file.includes(text)),
);

if (values.stale) {
  const stale = chosen.map((mutant) => ({ name: mutant.name, ...placeOf(root, mutant) })).filter(({ note }) => note !== undefined);
  for (const { name, note } of stale) console.log(`STALE ${name} (${note})`);
  process.exit(stale.length > 0 ? 1 : 0);
}

const folder = mkdtempSync(join(tmpdir(), 'weir-mutants-'));
let running;
process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  process.on(signal, () => {
    if (running) process.kill(-running.pid, 'SIGKILL');
    process.exit(130);
  });
}

for (const path of COPIED) if (existsSync(join(root, path))) cpSync(join(root, path), join(folder, path), { recursive: true });
symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'));

const suites = [...new Set(chosen.map((mutant) => JSON.stringify(suiteOf(mutant))))].map((text) => JSON.parse(text));
process.stdout.write(`${chosen.length} mutants; ${suites.length} sets of tests, first unchanged\n`);
// Otherwise a build that cannot work here would pass for a mutant that does not build.
if (!(await rebuild('abi/'))) {
  process.stderr.write('mutants: the engine does not build without any change; build first (npm run build)\n');
  process.exit(1);
}
for (const suite of suites) {
  if (await passes(suite)) continue;
  process.stderr.write(`mutants: ${suite.join(' ')} fails without any change; build first (npm run build), and look at npm run unit\n`);
  process.exit(1);
}

const rows = [];
for (const mutant of chosen) {
  const outcome = await judge(mutant);
  rows.push({ ...mutant, ...outcome });
  process.stdout.write(`${outcome.status.padEnd(8)} ${mutant.name}${outcome.note ? ` (${outcome.note})` : ''}\n`);
}
const count = (status) => rows.filter((row) => row.status === status).length;
const summary = `${count('killed')} of ${rows.length} killed, ${count('harmless')} survive and are harmless, ${count('SURVIVED')} survive, ${count('STALE')} no longer apply`;
process.stdout.write(`${summary}\n`);
if (values.write !== undefined) writeFileSync(values.write, report());
process.exitCode = count('SURVIVED') + count('STALE') > 0 ? 1 : 0;

/** The parameters of vitest for a mutant: its test files and, with `only`, a pattern for the names of tests. */
function suiteOf({ tests, only }) {
  return only === undefined ? tests : [...tests, '-t', only];
}

/** The one file with the line of a mutant, or a note why there is none. */
function placeOf(top, { file, find }) {
  const places = filesOf(join(top, file)).filter((path) => readFileSync(path, 'utf8').includes(find));
  if (places.length !== 1) return { note: `the text is in ${places.length} files of ${file}` };
  const times = readFileSync(places[0], 'utf8').split(find).length - 1;
  return times === 1 ? { path: places[0] } : { note: `the text is there ${times} times` };
}

/** Applies a mutant, runs its tests and puts the file back. */
async function judge(mutant) {
  const { find, replace, harmless } = mutant;
  const { path, note } = placeOf(folder, mutant);
  if (path === undefined) return { status: 'STALE', note };
  const before = readFileSync(path, 'utf8');
  const place = relative(folder, path);
  writeFileSync(
    path,
    before.replace(find, () => replace),
  );
  try {
    if (!(await rebuild(place))) return { status: 'killed', place, note: 'does not build' };
    const survives = await passes(suiteOf(mutant));
    if (!survives) return { status: 'killed', place, note: harmless ? 'listed as harmless' : '' };
    return harmless ? { status: 'harmless', place, note: harmless } : { status: 'SURVIVED', place, note: '' };
  } finally {
    writeFileSync(path, before);
    await rebuild(place);
  }
}

function filesOf(path) {
  if (!existsSync(path)) return [];
  if (statSync(path).isFile()) return [path];
  return readdirSync(path, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
    .map((entry) => join(entry.parentPath, entry.name));
}

/** Only the engine and the facts shared between languages are generated; tests read everything else as it is. */
async function rebuild(place) {
  if (place.startsWith('abi/') && !((await run(['npx', 'tsc', '-b', 'abi'])) && (await run(['node', 'build/abi/main.js'])))) return false;
  return !/^(abi|engine)\//.test(place) || run(['node', 'scripts/build-engine.mjs']);
}

function passes(files) {
  return run(['npx', 'vitest', 'run', '--maxWorkers=1', '--bail=1', '--testTimeout=60000', ...files]);
}

/** Whether the command ends well, and in time. */
function run([command, ...parameters]) {
  return new Promise((resolve) => {
    // The library in C is not part of these tests, and compiling it takes longest.
    running = spawn(command, parameters, { cwd: folder, stdio: 'ignore', detached: true, env: { ...process.env, CC: 'none' } });
    const late = setTimeout(() => process.kill(-running.pid, 'SIGKILL'), MOST_SECONDS * 1000);
    running.on('close', (code) => {
      clearTimeout(late);
      running = undefined;
      resolve(code === 0);
    });
  });
}

function report() {
  const cell = (text) => text.replaceAll('|', '\\|');
  const lines = rows.map(({ name, place, file, status, note }) => `| ${cell(name)} | ${place ?? file} | ${status} | ${cell(note)} |`);
  return `# Mutants\n\nMade by \`npm run mutants -- --write FILE\`: one line of the sources is changed, and the tests named in \`scripts/mutants.json\` run.\n\n${summary}.\n\n| change | file | outcome | reason |\n|---|---|---|---|\n${lines.join('\n')}\n`;
}
