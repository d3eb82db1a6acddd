// Writes the generated files: node build/abi/main.js, called by `npm run build`. Files that are up to date are left alone.
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { assemblyscriptFiles } from './generate/assemblyscript.ts';
import { headerFile } from './generate/header.ts';
import { pythonFile, pythonVariablesFile } from './generate/python.ts';
import { typescriptFiles } from './generate/typescript.ts';

const generated = typescriptFiles();
for (const [name, text] of generated) write(`src/abi/${name}`, text);
for (const name of readdirSync('src/abi')) if (!generated.has(name)) rmSync(join('src/abi', name));
for (const [name, text] of assemblyscriptFiles()) write(`engine/abi/${name}`, text);
write('build/native/weir_abi.h', headerFile());
write('python/weir/abi.py', pythonFile());
write('python/_weir_variables.py', pythonVariablesFile());

function write(path: string, text: string): void {
  mkdirSync(dirname(path), { recursive: true });
  if (!existsSync(path) || readFileSync(path, 'utf8') !== text) writeFileSync(path, text);
}
