// `npm run build:wheel`: makes build/wheels/weir_gpu-VERSION-py3-none-PLATFORM.whl without a network. The same sources, headers and
// compiler give the same bytes.
//   --headers DIR  a folder of PyTorch's headers per version, as scripts/gather-headers.mjs makes it (default: build/headers)
//   --cuda DIR     CUDA's headers (default: cuda in that folder)
//   --out DIR      where the wheel goes (default: build/wheels)
//   --no-build     takes dist/ as it is
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { wheelMetadata } from './dist-info.mjs';
import { build } from './setup.mjs';
import { compileAdapters } from './wheel/adapters.mjs';
import { checkBaseline, PLATFORM } from './wheel/baseline.mjs';
import { contents, JAVASCRIPT } from './wheel/contents.mjs';
import { zip } from './wheel/zip.mjs';

const USAGE = 'usage: npm run build:wheel -- [--headers FOLDER] [--cuda FOLDER] [--out FOLDER] [--no-build]';
const values = options();
/** Paths are given from where the user is; setup.mjs and npm go to the root. */
const given = (path) => path && resolve(process.env.INIT_CWD ?? process.env.PWD ?? '.', path);
const headers = given(values.headers) ?? resolve('build/headers');

function options() {
  const text = /** @type {const} */ ({ type: 'string' });
  try {
    return parseArgs({ options: { headers: text, cuda: text, out: text, 'no-build': { type: 'boolean' } } }).values;
  } catch (error) {
    console.error(`${error instanceof Error ? error.message : error}\n${USAGE}`);
    process.exit(2);
  }
}

try {
  if (!values['no-build']) {
    // A wheel must not hold modules that are gone.
    for (const path of ['dist', 'build/src.tsbuildinfo']) rmSync(path, { recursive: true, force: true });
    build();
  }
  await make();
} catch (error) {
  console.error(`no wheel was made: ${error.message}`);
  process.exitCode = 1;
}

async function make() {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
  const { SUPPORTED_PYTORCH: supported } = await generated('pytorch');
  const { ABI_DIGEST: digest } = await generated('engine');
  const cuda = given(values.cuda) ?? join(headers, 'cuda');
  const adapters = compileAdapters({ headers, cuda, supported }, { version, digest });

  const files = contents({ platform: 'linux', architecture: 'x64' });
  for (const [name, data] of files) if (name.endsWith('.node')) checkBaseline(name, data);
  for (const [name, data] of adapters.files) files.set(`${JAVASCRIPT}/dist/prebuilt/${name}`, data);
  const sorted = new Map([...files].sort(([a], [b]) => (a < b ? -1 : 1)));
  const { name, own } = wheelMetadata('.', PLATFORM, sorted);
  const wheel = zip([...sorted, ...own].map(([path, data]) => ({ name: path, data })));
  const out = given(values.out) ?? resolve('build/wheels');
  mkdirSync(out, { recursive: true });
  writeFileSync(join(out, name), wheel);

  for (const line of adapters.made) console.log(`adapter for PyTorch ${line}`);
  for (const line of adapters.leftOut) console.log(`left out: ${line}`);
  if (adapters.made.length === 0)
    console.log('The wheel has no compiled adapter: weir run compiles one on first use, with g++ and CUDA headers.');
  console.log(`${join(out, name)}: ${(wheel.length / 2 ** 20).toFixed(2)} MiB, ${sorted.size} files`);
}

/** A generated table, as built. */
function generated(name) {
  return import(pathToFileURL(resolve('dist/abi', `${name}.js`)).href);
}
