// Writes the table of PyTorch's versions in docs/versions.md: `node scripts/versions.mjs`, after a build.
// The table itself is abi/pytorch.ts.
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { PYTORCH_TRUST, PYTORCH_VERSIONS } from '../dist/abi/pytorch.js';

const PAGE = new URL('../docs/versions.md', import.meta.url);
const BLOCK = /(<!-- versions -->\n)[\s\S]*?(<!-- \/versions -->)/;

/** A document with the table between its markers. */
export function withVersions(text) {
  const rows = PYTORCH_VERSIONS.map(
    ({ version, trust }) => `| ${version} | ${PYTORCH_TRUST[trust]} | ${trust === 'gpu' ? '' : 'recommended, once'} |`,
  );
  const table = ['| PyTorch | How Weir was tested with it | `weir run --check` |', '|---|---|---|', ...rows].join('\n');
  return text.replace(BLOCK, (_, begin, end) => `${begin}${table}\n${end}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(PAGE, withVersions(readFileSync(PAGE, 'utf8')));
