// `npm run check` and `npm run format` on files with one fault each, in the languages that Biome does not know.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, test } from 'vitest';

const SCRIPT = fileURLToPath(new URL('../../scripts/format.mjs', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'weir-format-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const format = (...parameters: string[]) => spawnSync(process.execPath, [SCRIPT, ...parameters, folder], { encoding: 'utf8' });
const write = (name: string, text: string) => writeFileSync(join(folder, name), text);

test('faults in Python, C and C++ are told by file and line, and what can be is put right', () => {
  write('order.py', 'import sys\nimport os\n\nprint( sys.path,os.sep )\n');
  write('unused.py', 'import os\n');
  write('broken.py', 'def broken(:\n');
  write('new.py', 'match 1:\n    case 1:\n        pass\n');
  write('a.c', 'int  main( void ){return 0;}\n');
  write('a.cpp', 'struct point{int x;};\n');
  write('good.h', 'int twice(int number);\n');
  const checked = format('--check');
  expect(checked.status).toBe(1);
  for (const name of ['order.py', 'a.c', 'a.cpp'])
    expect(checked.stderr).toContain(`${join(folder, name)} is not formatted; run npm run format\n`);
  expect(checked.stderr).toContain(`${join(folder, 'order.py')}:1:1: I001 `);
  expect(checked.stderr).toContain(`${join(folder, 'unused.py')}:1:8: F401 `);
  expect(checked.stderr).toContain(`${join(folder, 'broken.py')}:1:12: invalid-syntax `);
  // Python 3.8 has no match statement.
  expect(checked.stderr).toContain(`${join(folder, 'new.py')}:1:1: invalid-syntax `);
  expect(checked.stderr).not.toContain('good.h');

  expect(format().status).toBe(1);
  expect(readFileSync(join(folder, 'order.py'), 'utf8')).toBe('import os\nimport sys\n\nprint(sys.path, os.sep)\n');
  expect(readFileSync(join(folder, 'a.c'), 'utf8')).toBe('int main(void) { return 0; }\n');
  for (const name of ['unused.py', 'broken.py', 'new.py']) rmSync(join(folder, name));
  expect(format('--check').status).toBe(0);
});
