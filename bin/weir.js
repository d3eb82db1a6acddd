#!/usr/bin/env node
// The command that npm installs. npm links no file that is missing, and a clone has no `dist` before its first build.
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const main = new URL('../dist/cli/main.js', import.meta.url);
if (existsSync(main)) {
  await import(main.href);
} else {
  process.stderr.write(`weir: not built yet; run npm start in ${fileURLToPath(new URL('..', import.meta.url))}\n`);
  process.exitCode = 2;
}
