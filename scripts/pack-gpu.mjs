// Packs everything for a GPU machine without Node, npm or a network: `node scripts/pack-gpu.mjs OUT_FOLDER`.
// Run there: OUT_FOLDER/node OUT_FOLDER/build/test/gpu/main.js, or OUT_FOLDER/node OUT_FOLDER/dist/cli/main.js replay
// ...
import { spawnSync } from 'node:child_process';
import { copyFileSync, cpSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { build } from './setup.mjs';

const out = process.argv[2];
if (!out) {
  console.error('usage: node scripts/pack-gpu.mjs OUT_FOLDER');
  process.exit(2);
}
build();
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
copyFileSync(process.execPath, join(out, 'node'));
// Two thirds of the binary are symbols. If `strip` is missing, the package is only larger.
spawnSync('strip', [join(out, 'node')]);
for (const name of [
  'package.json',
  'dist',
  'build/src',
  'build/test',
  'build/bench',
  // With native/testing, for the tests that make driver calls fail: they set WEIR_NATIVE.
  'native',
  ...readdirSync('build/native')
    .filter((name) => /\.[ch]$/.test(name))
    .map((name) => `build/native/${name}`),
  'samples',
  'bench/gpu',
  'test/gpu/torch',
  'test/python',
  'test/engine/lending/swap-order.json',
  // Fuzzing needs many cores and no GPU: OUT_FOLDER/node OUT_FOLDER/build/test/fuzz/main.js
  'test/fuzz/corpus',
]) {
  cpSync(name, join(out, name), { recursive: true, filter: (source) => !/\.(map|d\.ts|pickle)$|__pycache__/.test(source) });
}
// koffi's binaries are in packages of their own, named by platform.
const { dependencies } = JSON.parse(readFileSync('package.json', 'utf8'));
for (const name of [...Object.keys(dependencies), '@koromix']) {
  cpSync(join('node_modules', name), join(out, 'node_modules', name), {
    recursive: true,
    filter: (source) => !/\.(map|d\.ts|md)$/.test(source),
  });
}
