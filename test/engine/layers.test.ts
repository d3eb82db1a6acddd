// The engine's folders are layers: imports point downward, and no file imports itself through others.
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, posix } from 'node:path';
import { describe, expect, it } from 'vitest';

/** Bottom first, as in engine/README.md; the files of engine/ itself are the last. */
const LAYERS: readonly string[] = ['base', 'abi', 'records', 'space', 'streams', 'plans', 'policy', '.'];

const root = join(process.cwd(), 'engine');

/** Imports of every file of the engine, by path. */
function readImports(): Map<string, string[]> {
  const imports = new Map<string, string[]>();
  for (const path of readdirSync(root, { recursive: true, encoding: 'utf8' })) {
    if (path.endsWith('.ts')) imports.set(path, importsOf(path, readFileSync(join(root, path), 'utf8')));
  }
  return imports;
}

function importsOf(path: string, text: string): string[] {
  const froms = [...text.matchAll(/^(?:import|export)\b[^;]*?\bfrom '([^']*)'/gm)].map((match) => match[1]!);
  return froms.map((from) => `${posix.join(dirname(path), from)}.ts`);
}

function upwardImports(imports: ReadonlyMap<string, readonly string[]>): string[] {
  const layerOf = (path: string) => LAYERS.indexOf(dirname(path));
  const upward: string[] = [];
  for (const [path, targets] of imports) {
    for (const target of targets) if (layerOf(target) > layerOf(path)) upward.push(`${path} -> ${target}`);
  }
  return upward;
}

/** One cycle of files, or nothing. */
function findCycle(imports: ReadonlyMap<string, readonly string[]>): string[] {
  const finished = new Set<string>();
  const path: string[] = [];
  const visit = (file: string): string[] => {
    if (path.includes(file)) return [...path.slice(path.indexOf(file)), file];
    if (finished.has(file)) return [];
    path.push(file);
    for (const target of imports.get(file) ?? []) {
      const cycle = visit(target);
      if (cycle.length > 0) return cycle;
    }
    path.pop();
    finished.add(file);
    return [];
  };
  for (const file of imports.keys()) {
    const cycle = visit(file);
    if (cycle.length > 0) return cycle;
  }
  return [];
}

describe('layers of the engine', () => {
  const imports = readImports();

  it('every file lies in a layer, and every import names a file', () => {
    expect(imports.size).toBeGreaterThan(40);
    for (const [path, targets] of imports) {
      expect(LAYERS, path).toContain(dirname(path));
      for (const target of targets) expect([...imports.keys()], path).toContain(target);
    }
  });

  it('imports point downward', () => {
    expect(upwardImports(imports)).toEqual([]);
  });

  it('no file imports itself through others', () => {
    expect(findCycle(imports)).toEqual([]);
  });

  it('README.md names the layers in this order', () => {
    const rows = [...readFileSync(join(root, 'README.md'), 'utf8').matchAll(/^\| `([a-z]+)\/` \|/gm)].map((match) => match[1]);
    expect(rows).toEqual(LAYERS.slice(0, -1));
  });

  it('an upward import and a cycle would be found', () => {
    const wrong = new Map(imports);
    wrong.set('space/ranges.ts', [...imports.get('space/ranges.ts')!, 'policy/weir.ts']);
    expect(upwardImports(wrong)).toEqual(['space/ranges.ts -> policy/weir.ts']);
    expect(findCycle(wrong)).toContain('space/ranges.ts');
    expect(importsOf('plans/a.ts', "import {\n  one,\n  two,\n} from '../policy/b';\n")).toEqual(['policy/b.ts']);
  });
});
