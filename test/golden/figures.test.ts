// `weir analyze`, `replay` and `plan --json` give the figures that are kept in figures.json, on every sample.
// WEIR_GOLDEN_ALL=1 (`npm run golden`) compares the recordings in ../shared/traces too, which takes some minutes.
// WEIR_GOLDEN_UPDATE=1 writes the file anew: say in the commit which figures changed, and why.
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { afterAll, describe, expect, it } from 'vitest';
import { ROOT } from '../support/command.ts';
import { differences, type Figure, type FigureFile, figuresOf, onlyFigures, unpack, writeFigures } from './figures.ts';

const FILE = new URL('figures.json', import.meta.url);
const TRACES = new URL('../shared/traces/', ROOT);
const ABOUT = 'Figures of weir analyze, replay and plan --json; made and compared by figures.test.ts.';

const isUpdate = process.env['WEIR_GOLDEN_UPDATE'] === '1';
const isAll = process.env['WEIR_GOLDEN_ALL'] === '1' || isUpdate;

const kept = JSON.parse(readFileSync(FILE, 'utf8')) as FigureFile;
const old = new Map(Object.entries(kept.figures).map(([path, sections]) => [path, new Map(Object.entries(sections))]));

/** `samples/...`, or `traces/...` for a file of ../shared. */
const urlOf = (path: string) => (path.startsWith('traces/') ? new URL(`../shared/${path}`, ROOT) : new URL(path, ROOT));

const samples = (folder: string) =>
  readdirSync(new URL(folder, ROOT), { withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => `${folder}${entry.name}`);

const paths = [...samples('samples/'), ...samples('samples/exact/'), ...[...old.keys()].filter((path) => path.startsWith('traces/'))];

const fresh: Record<string, Record<string, Figure>> = {};
afterAll(() => {
  if (!isUpdate) return;
  // What could not be run here stays as it was.
  const all = paths.map((path) => {
    const before = [...(old.get(path) ?? [])].map(([section, value]) => [section, unpack(value, kept.keys)] as const);
    return [path, fresh[path] ?? Object.fromEntries(before)] as const;
  });
  writeFileSync(FILE, writeFigures(ABOUT, Object.fromEntries(all)));
});

describe('figures', () => {
  for (const path of paths) {
    const isFar = path.startsWith('traces/');
    const sections = path.startsWith('traces/access/') ? ['swap'] : ['analyze', 'replay', 'plan'];
    const reason = !isAll
      ? ' (skipped: npm run golden compares it)'
      : existsSync(TRACES)
        ? ''
        : ' (skipped: ../shared/traces is not there)';
    it.skipIf(isFar && reason !== '').each(sections)(`of ${path}${isFar ? reason : ''}: %s`, async (section) => {
      const now = await figuresOf(section, urlOf(path).pathname);
      fresh[path] = { ...fresh[path], [section]: now };
      if (isUpdate) return;
      const before = old.get(path)?.get(section);
      expect(before, `figures.json has nothing of ${path}, ${section}; WEIR_GOLDEN_UPDATE=1 npm run golden adds it`).toBeDefined();
      const changed = differences(section, unpack(before!, kept.keys), now);
      expect(changed, `${path}, ${section}`).toEqual([]);
    });
  }
});

describe('the comparison', () => {
  const row = { allocator: 'weir', peakReserved: 1000, driver: { timeUs: 12 }, retries: null };
  const before: Figure = [{ results: [row], periodic: true }];

  it('names the figure, what it was and what it is', () => {
    expect(differences('replay', before, [{ results: [{ ...row, peakReserved: 1001 }], periodic: true }])).toEqual([
      '[0].results[weir].peakReserved: was 1000, is 1001',
    ]);
    expect(differences('replay', before, [{ results: [{ ...row, retries: 2 }], periodic: false }])).toEqual([
      '[0].results[weir].retries: was null, is 2',
      '[0].periodic: was true, is false',
    ]);
    expect(differences('replay', before, [{ results: [row] }])).toEqual(['[0].periodic: was true, is gone']);
    expect(differences('replay', before, [{ results: [row, row], periodic: true }])).toEqual(['[0].results: had 1 entries, has 2']);
  });

  it('accepts new figures, and the last digits of a sum', () => {
    expect(differences('replay', before, [{ results: [{ ...row, driver: { timeUs: 12 + 1e-11 }, more: 1 }], periodic: true }])).toEqual([]);
  });

  it('holds a plan to its footprint, exactly where it is proven optimal', () => {
    const plan = { lowerBound: 990, footprint: 1000 };
    expect(differences('plan', [plan], [{ lowerBound: 990, footprint: 1009 }])).toEqual([]);
    expect(differences('plan', [plan], [{ lowerBound: 990, footprint: 1011 }])).toHaveLength(1);
    expect(differences('plan', [plan], [{ lowerBound: 991, footprint: 1000 }])).toHaveLength(1);
    const proven = { ...plan, optimal: true };
    expect(differences('plan', [proven], [{ ...proven, footprint: 1001 }])).toHaveLength(1);
  });

  it('keeps what it packs', () => {
    const figures = { a: { replay: before }, b: { replay: [{ results: [], periodic: false }] } };
    const file = JSON.parse(writeFigures('', figures)) as FigureFile;
    expect(unpack(file.figures['a']!['replay']!, file.keys)).toEqual(before);
    expect(unpack(file.figures['b']!['replay']!, file.keys)).toEqual(figures.b.replay);
    expect(onlyFigures({ wallMs: 3, rows: [{ line: 'export X', savedBytes: 5 }] }, 'analyze')).toEqual({ rows: [{ savedBytes: 5 }] });
  });
});
