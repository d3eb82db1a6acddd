// Puts what training processes load beside the built code: the Python package, and the sources of the library that is compiled
// on first use, the generated engine among them. Called by `npm run build`.
import { copyFileSync, cpSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { writeDistInfo } from './dist-info.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const python = fresh('dist/python');
cpSync(join(root, 'python'), python, { recursive: true, filter: (path) => basename(path) !== '__pycache__' });
writeDistInfo(root, python);

// testing/ stays at home: users need no backends for tests. WEIR_NATIVE names a checkout's native/ where faults are wanted.
const native = fresh('dist/native');
const stays = [join(root, 'native/testing'), join(root, 'native/README.md')];
cpSync(join(root, 'native'), native, { recursive: true, filter: (path) => !stays.includes(path) });
for (const name of readdirSync(join(root, 'build/native'))) {
  if (name === 'engine.c' || name.endsWith('.h')) copyFileSync(join(root, 'build/native', name), join(native, name));
}

function fresh(path) {
  const full = join(root, path);
  rmSync(full, { recursive: true, force: true });
  mkdirSync(full, { recursive: true });
  return full;
}
