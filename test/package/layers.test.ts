// Imports follow the table of layers, and the check of that refuses everything the table does not allow.
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { describe, expect, it } from 'vitest';
import { importsOf, LAYERS, NATIVE_LOADER, NATIVE_USERS, ROOMS, violations, violationsIn, withLayers } from '../../scripts/layers.mjs';
import { ROOT } from '../support/command.ts';

/** Layers that are no folder of src. */
const LEAVES = { web: 'web/main.ts', index: 'src/index.ts' } as Record<string, string>;
const layers = new Map(LAYERS.map((layer) => [layer.name, layer]));

/** A file of a layer that the table has no exception for. */
const fileOf = (layer: string) => LEAVES[layer] ?? `src/${layer}/probe.ts`;

const runsAnywhere = (layer: string) => layers.get(layer)!.runs !== 'Node';

/** What the check says of a file that imports another one. */
function refusal(path: string, target: string): string {
  const name = relative(join(path, '..'), target);
  return violationsIn(path, `import { probe } from '${name.startsWith('.') ? name : `./${name}`}';\n`).join('\n');
}

describe('the tree', () => {
  it('imports nothing against the layers', () => {
    expect(violations()).toEqual([]);
  });

  it('has no folder in src that the table does not know', () => {
    const folders = readdirSync(new URL('src', ROOT), { withFileTypes: true }).filter((entry) => entry.isDirectory());
    expect(folders.map(({ name }) => name).filter((name) => !layers.has(name))).toEqual([]);
  });

  it('has the rooms that the table names, and no others', () => {
    for (const [layer, rooms] of Object.entries(ROOMS)) {
      const folders = readdirSync(new URL(`src/${layer}`, ROOT), { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isDirectory())
        .map((entry) => relative(new URL(`src/${layer}`, ROOT).pathname, join(entry.parentPath, entry.name)));
      expect(folders.sort(), layer).toEqual(
        Object.keys(rooms)
          .filter((room) => room !== '.')
          .sort(),
      );
    }
  });

  it('is described in ARCHITECTURE.md as in the table', () => {
    const text = readFileSync(new URL('ARCHITECTURE.md', ROOT), 'utf8');
    expect(text).toContain('<!-- layers -->');
    expect(withLayers(text), 'node scripts/layers.mjs --write').toBe(text);
  });
});

describe('the table', () => {
  it('has layers that import only those below them', () => {
    LAYERS.forEach(({ name, imports }, index) => {
      const below = LAYERS.slice(index + 1).map((layer) => layer.name);
      expect(
        imports.filter((other) => !below.includes(other)),
        name,
      ).toEqual([]);
    });
  });

  it.each(Object.keys(ROOMS))('has no cycle among the rooms of %s', (layer) => {
    const reach = (room: string, path: readonly string[]): void => {
      expect(path, layer).not.toContain(room);
      for (const next of ROOMS[layer]![room]!) reach(next, [...path, room]);
    };
    for (const room of Object.keys(ROOMS[layer]!)) reach(room, []);
  });
});

describe.each(LAYERS.map((layer) => layer.name))('a file of %s', (name) => {
  const { imports, packages, runs } = layers.get(name)!;
  const place = name === 'web' ? 'web' : name === 'index' ? 'src/index.ts' : `src/${name}`;
  const path = fileOf(name);
  const others = LAYERS.map((layer) => layer.name).filter((other) => other !== name);

  it('may import the layers in its list', () => {
    for (const other of imports) {
      if (runs === 'Node' || runsAnywhere(other)) expect(refusal(path, fileOf(other)), other).toBe('');
    }
  });

  it('may import no other layer', () => {
    for (const other of others.filter((candidate) => !imports.includes(candidate))) {
      const said = refusal(path, fileOf(other));
      expect(said, other).toContain(`${path} imports`);
      expect(said, other).toContain(`${place} may import only from: ${imports.join(', ') || 'nothing'}`);
    }
  });

  it('may not import the tables of abi/', () => {
    expect(refusal(path, 'abi/settings.ts')).toContain('may import only from layers');
  });

  it(runs === 'Node' ? 'may use Node' : "may use nothing of Node's", () => {
    const said = violationsIn(path, "import { readFileSync } from 'node:fs';\n").join('\n');
    if (runs === 'Node') expect(said).toBe('');
    else expect(said).toContain(`${path} imports node:fs: ${place} is pure`);
  });

  it('may use only the packages in its list', () => {
    for (const known of ['commander', 'koffi', 'hono/streaming', 'preact/hooks']) {
      if (packages.includes(known.split('/')[0]!)) continue;
      expect(violationsIn(path, `import it from '${known}';\n`).join('\n'), known).toContain(`${place} may use only these packages`);
    }
  });
});

describe('a pure layer with files for Node', () => {
  const backend = layers.get('backend')!;

  it('lets those files use Node and FFI, and no others', () => {
    for (const file of backend.nodeFiles!) {
      expect(violationsIn(`src/backend/${file}`, "import 'node:os';\nimport type Koffi from 'koffi';\n")).toEqual([]);
    }
    expect(violationsIn('src/backend/probe.ts', "import koffi from 'koffi';\n").join()).toContain('src/backend is pure but for');
  });

  it('keeps native code from being loaded with a file', () => {
    const said = (path: string, source: string) => violationsIn(path, source).join('\n');
    const ways = ["import koffi from 'koffi';", "import 'koffi';", "export { load } from 'koffi';", "const koffi = await import('koffi');"];
    for (const source of ways) expect(said(NATIVE_LOADER, source), source).toContain('imports koffi: ');
    expect(said(NATIVE_LOADER, "export const koffi = createRequire(import.meta.url)('koffi');")).toBe('');
    expect(said('src/backend/host.ts', "const koffi = require('koffi');")).toContain('loads koffi: only src/backend/ffi.ts does');
    for (const path of NATIVE_USERS)
      expect(said(path, `import { loadKoffi } from '${relative(join(path, '..'), NATIVE_LOADER).replace(/^(?!\.)/, './')}';`)).toBe('');
    for (const path of ['src/cli/input.ts', 'src/cli/commands/analyze.ts', 'src/index.ts', 'src/server/app.ts', 'src/run/supervise.ts']) {
      const name = relative(join(path, '..'), NATIVE_LOADER);
      expect(said(path, `import { loadKoffi } from '${name.startsWith('.') ? name : `./${name}`}';\n`), path).toContain('need native code');
    }
  });

  it('keeps pure files from importing them', () => {
    for (const file of backend.nodeFiles!) {
      for (const { name } of LAYERS.filter((layer) => layer.imports.includes('backend') && layer.runs !== 'Node')) {
        expect(refusal(fileOf(name), `src/backend/${file}`), name).toContain('is pure: it also runs in the browser');
      }
      expect(refusal('src/backend/probe.ts', `src/backend/${file}`)).toContain('src/backend is pure');
      if (`src/backend/${file}` !== NATIVE_LOADER) expect(refusal('src/pool/probe.ts', `src/backend/${file}`)).toBe('');
    }
  });
});

describe.each(Object.entries(ROOMS).flatMap(([layer, rooms]) => Object.keys(rooms).map((room) => [layer, room] as const)))(
  'a file of src/%s/%s',
  (layer, room) => {
    const rooms = ROOMS[layer]!;
    const fileIn = (folder: string) => `src/${layer}/${folder === '.' ? '' : `${folder}/`}probe.ts`;

    it('may import the rooms in its list and no others', () => {
      for (const other of Object.keys(rooms).filter((candidate) => candidate !== room)) {
        const said = refusal(fileIn(room), fileIn(other));
        if (rooms[room]!.includes(other)) expect(said, other).toBe('');
        else expect(said, other).toContain(`src/${layer}/${room} may import only from: ${rooms[room]!.join(', ') || 'nothing'}`);
      }
    });
  },
);

describe('what is read as an import', () => {
  it.each([
    "import { a } from '../x.ts';",
    "import type { A } from '../x.ts';",
    "import {\n  a,\n  b,\n} from '../x.ts';",
    "export { a } from '../x.ts';",
    "export * from '../x.ts';",
    "import '../x.ts';",
    "type A = import('../x.ts').A;",
    "const x = await import('../x.ts');",
    "new Worker(new URL('../x.ts', import.meta.url));",
  ])('%s', (source) => {
    expect(importsOf(`// a file\n${source}\n`)).toEqual(['../x.ts']);
  });

  it('is not text that looks like one', () => {
    expect(importsOf("export const a = 1;\nconst b = `copied from 'there'`;\n// import { x } from 'y';\n")).toEqual([]);
  });

  it('is everything in a folder that belongs to no layer', () => {
    expect(violationsIn('src/probe/probe.ts', '').join()).toContain('belongs to no layer');
    expect(violationsIn('abi/probe.ts', "import { a } from '../src/base/bytes.ts';\n").join()).toContain('abi may import only from itself');
    expect(violationsIn('abi/probe.ts', "import { a } from './tables.ts';\nimport 'node:fs';\n")).toEqual([]);
  });
});
