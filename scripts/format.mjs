// Formats and lints every language here: Biome for TypeScript and JSON, Ruff for Python, clang-format for C and C++, all from npm.
// `npm run format` writes; with --check (`npm run check`, `npm test`) it only says what is wrong and exits with 1.
// Folders as further arguments limit it to these.
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import ruff from '@astral-sh/ruff-wasm-nodejs';
import { ClangFormat } from '@wasm-fmt/clang-format';

process.chdir(new URL('..', import.meta.url).pathname);
const isCheck = process.argv.includes('--check');
const given = process.argv.slice(2).filter((argument) => argument !== '--check');
const folders = given.length > 0 ? given : ['.'];

/** Installed, built or downloaded: not ours to format. */
const SKIPPED = new Set(['abi.py', 'variables.py', 'node_modules', 'dist', 'build', 'samples', '.git', '__pycache__']);

let failures = 0;

const biome = ['check', ...(isCheck ? ['--error-on-warnings'] : ['--write']), '--no-errors-on-unmatched', ...folders];
if (spawnSync('node_modules/.bin/biome', biome, { stdio: 'inherit' }).status !== 0) failures++;

const workspace = new ruff.Workspace(readToml('ruff.toml'), ruff.PositionEncoding.Utf16);
for (const path of filesEnding('.py')) {
  const text = readFileSync(path, 'utf8');
  const wanted = formatPython(text);
  for (const { code, message, start_location: at } of workspace.check(isCheck ? text : wanted))
    say(`${path}:${at.row}:${at.column}: ${code} ${message}`);
  write(path, text, wanted);
}

const clang = new ClangFormat().with_style(readFileSync('.clang-format', 'utf8'));
for (const path of filesEnding('.c', '.cpp', '.h')) {
  const text = readFileSync(path, 'utf8');
  write(path, text, clang.format(text, path));
}

process.exitCode = failures > 0 ? 1 : 0;

function write(path, text, wanted) {
  if (text === wanted) return;
  if (isCheck) say(`${path} is not formatted; run npm run format`);
  else writeFileSync(path, wanted);
}

function say(line) {
  failures++;
  console.error(line);
}

function filesEnding(...endings) {
  const walk = (folder) =>
    readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
      const path = join(folder, entry.name);
      if (SKIPPED.has(entry.name)) return [];
      if (entry.isDirectory()) return walk(path);
      return endings.some((ending) => entry.name.endsWith(ending)) ? [path] : [];
    });
  return folders.flatMap(walk).sort();
}

/** The same text if it cannot be parsed, which the linter says. */
function formatPython(text) {
  try {
    return workspace.format(sortImports(text));
  } catch {
    return text;
  }
}

/** Sorts imports. Ruff offers other fixes too, but does not say here which of them keep the meaning. */
function sortImports(text) {
  for (;;) {
    const { fix } = workspace.check(text).find(({ code, fix }) => code === 'I001' && fix !== null) ?? {};
    if (!fix) return text;
    const lines = text.split(/(?<=\n)/);
    const offset = ({ row, column }) => lines.slice(0, row - 1).join('').length + column - 1;
    for (const { content, location, end_location: end } of fix.edits.toReversed())
      text = text.slice(0, offset(location)) + (content ?? '') + text.slice(offset(end));
  }
}

/** As much of TOML as ruff.toml needs: sections, and values on one line that are JSON as well. */
function readToml(path) {
  const settings = {};
  let section = settings;
  for (const line of readFileSync(path, 'utf8').split('\n')) {
    const [, name] = /^\[([\w.-]+)\]$/.exec(line) ?? [];
    const [, key, value] = /^([\w-]+) = (.+)$/.exec(line) ?? [];
    if (name) section = name.split('.').reduce((outer, part) => (outer[part] ??= {}), settings);
    else if (key) section[key] = JSON.parse(value);
    else if (line.trim() !== '' && !line.startsWith('#')) throw new Error(`${path}: cannot read "${line}"`);
  }
  return settings;
}
