// The rooms of native/ include each other in one direction only, and users' sources include nothing of testing/.
// native/README.md has the same table.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';

const MAY_USE: Readonly<Record<string, readonly string[]>> = {
  engine: [],
  backend: ['engine'],
  runtime: ['engine', 'backend'],
  torch: ['engine', 'backend', 'runtime', 'versions'],
  // A room inside of torch/: what differs between versions of PyTorch knows nothing of the rest.
  'torch/versions': [],
  testing: ['engine', 'backend'],
};

/** The only place that may name testing/, behind a check that it exists. */
const FAULTS = 'native/torch/faults.h';

const files = (room: string) =>
  readdirSync(join('native', room))
    .filter((name) => /\.(c|cpp|h)$/.test(name))
    .map((name) => join('native', room, name));
const includes = (path: string) => [...readFileSync(path, 'utf8').matchAll(/^#include "([^"]+)"/gm)].map((match) => match[1]!);

describe('the rooms of native/', () => {
  test('are those of the table', () => {
    const rooms = readdirSync('native', { withFileTypes: true }).flatMap((entry) => (entry.isDirectory() ? [entry.name] : []));
    expect([...rooms, 'torch/versions'].sort()).toEqual(Object.keys(MAY_USE).sort());
  });

  test.each(Object.keys(MAY_USE))('%s includes only what lies below it', (room) => {
    for (const path of files(room)) {
      for (const name of includes(path)) {
        const [other, file] = name.includes('/') ? name.split('/') : [room, name];
        if (path === FAULTS && other === 'testing') continue;
        // engine.h and other generated headers lie in build/native.
        if (other === room && (existsSync(join('native', room, file!)) || existsSync(join('build/native', file!)))) continue;
        expect(MAY_USE[room], `${path} includes ${name}`).toContain(other);
      }
    }
  });
});
