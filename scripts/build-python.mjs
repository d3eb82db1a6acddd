// Puts what training processes load beside the built code: the Python package, and the sources of the library that is compiled
// on first use, the generated engine among them. Called by `npm run build`.
import { copyFileSync, cpSync, existsSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { writeDistInfo } from './dist-info.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const isSource = (name) => /\.(c|cpp|h)$/.test(name);

const python = fresh('dist/python');
cpSync(join(root, 'python'), python, { recursive: true, filter: (path) => basename(path) !== '__pycache__' });
writeDistInfo(root, python);

const native = fresh('dist/native');
copySources('native', native);
copySources('native/torch', join(native, 'torch'));
for (const name of ['engine.c', 'engine.h']) copyFileSync(join(root, 'build/native', name), join(native, name));

function fresh(path) {
  const full = join(root, path);
  rmSync(full, { recursive: true, force: true });
  mkdirSync(full, { recursive: true });
  return full;
}

function copySources(from, to) {
  const folder = join(root, from);
  if (!existsSync(folder)) return;
  mkdirSync(to, { recursive: true });
  for (const name of readdirSync(folder)) if (isSource(name)) copyFileSync(join(folder, name), join(to, name));
}
