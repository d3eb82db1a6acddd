// Writes the generated files: node build/abi/main.js, called by `npm run build`. Files that are up to date are left alone.
// With --check it writes nothing, names the files that differ from the tables, and ends with 1 if there are any.
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { assemblyscriptFiles } from './generate/assemblyscript.ts';
import { headerFile } from './generate/header.ts';
import { pythonFile, pythonVariablesFile } from './generate/python.ts';
import { typescriptFiles } from './generate/typescript.ts';

const generated = new Map([
  ...under('src/abi', typescriptFiles()),
  ...under('engine/abi', assemblyscriptFiles()),
  ['build/native/weir_abi.h', headerFile()] as const,
  ['python/weir_gpu/abi.py', pythonFile()] as const,
  ['python/weir_gpu/variables.py', pythonVariablesFile()] as const,
]);
const old = [...generated].filter(([path, text]) => !existsSync(path) || readFileSync(path, 'utf8') !== text);

if (process.argv.includes('--check')) {
  for (const [path] of old) process.stderr.write(`${path} is not what abi/ says; run npm run build\n`);
  process.exitCode = old.length > 0 ? 1 : 0;
} else {
  for (const [path, text] of old) {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
  }
  // src/abi holds nothing else: a table that is gone leaves no file behind.
  for (const name of readdirSync('src/abi')) if (!generated.has(`src/abi/${name}`)) rmSync(join('src/abi', name));
}

function under(folder: string, files: ReadonlyMap<string, string>): [string, string][] {
  return [...files].map(([name, text]) => [`${folder}/${name}`, text]);
}
