// `weir diff` as a user runs it: files, folders of ranks, several GPUs, rules and exit codes.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { Symbols } from '../../src/trace/symbols.ts';
import type { Trace } from '../../src/trace/trace.ts';
import { ROOT, weir } from '../support/command.ts';
import { FORWARD, MIB, type TrainingOptions, train } from '../support/training.ts';
import { weirBytes } from '../trace/weir-support.ts';

const folder = mkdtempSync(join(tmpdir(), 'weir-diff-'));
afterAll(() => rmSync(folder, { recursive: true }));

const MORE = [...FORWARD, { line: 13, calls: 'relu', size: 5 * MIB } as const];

function write(name: string, ...traces: Trace[]): string {
  const path = join(folder, name);
  mkdirSync(join(path, '..'), { recursive: true });
  writeFileSync(path, weirBytes({ format: 'weir', traces }));
  return path;
}

const recorded = (name: string, options: TrainingOptions = {}) => write(name, train(options));
const before = recorded('before.weir');
const after = recorded('after.weir', { forward: MORE });

describe('weir diff', () => {
  it('says what grew, in sentences and in a table', async () => {
    const { code, stdout, stderr } = await weir(['diff', before, after]);
    expect([code, stderr]).toEqual([0, '']);
    const lines = stdout.split('\n');
    expect(lines.slice(0, 2)).toEqual([`A: ${before}, GPU 0, 473 events, pytorch`, `B: ${after}, GPU 0, 617 events, pytorch`]);
    expect(lines[3]).toBe('Live memory grew by 15 MiB (+20.4 %): 73.5 -> 88.5 MiB at the peak of the 7th step found.');
    expect(lines[4]).toBe('What grew most: proj/model.py:13 forward (+15 MiB, new).');
    expect(stdout).toMatch(
      / {2}- +15 MiB +\+15 MiB +new +0 -> 3 x {2}proj\/model\.py:13 forward \(called from proj\/train\.py:31 step\)\n/,
    );
  });

  it('prints JSON', async () => {
    const { code, stdout } = await weir(['diff', before, after, '--json']);
    const found = JSON.parse(stdout);
    expect(code).toBe(0);
    expect(found).toMatchObject({
      schema: 1,
      growth: 15 * MIB,
      alignment: { by: 'step', step: { number: 7, isCounted: false, common: 7 } },
    });
    expect(found.before).toMatchObject({ file: before, live: 73.5 * MIB, leaks: { sites: [] } });
    expect(found.sites[0]).toMatchObject({ label: 'proj/model.py:13 forward', before: 0, after: 15 * MIB, isOnly: true, movedFrom: null });
  });

  it('documents every field of its JSON', async () => {
    const documented = readFileSync(new URL('docs/json.md', ROOT), 'utf8');
    const section = documented.slice(documented.indexOf('## weir diff'));
    const { stdout } = await weir(['diff', before, recorded('leaking.weir', { leak: MIB }), '--json']);
    const names = new Set<string>();
    JSON.parse(stdout, (name, value) => {
      if (!/^\d*$/.test(name)) names.add(name);
      return value;
    });
    for (const name of names) expect(section).toContain(name);
  });

  it('guards CI', async () => {
    const broken = await weir(['diff', before, after, '--fail-if', 'growth>2%', '--fail-if', 'leaks>0']);
    expect([broken.code, broken.stderr]).toEqual([1, 'weir: growth is 20.4 % (rule: growth>2%)\n']);
    const leaking = await weir(['diff', before, recorded('leak.weir', { leak: MIB }), '--fail-if', 'leaks>0']);
    expect([leaking.code, leaking.stderr]).toEqual([1, 'weir: leaks is 1 (rule: leaks>0)\n']);
    expect((await weir(['diff', before, after, '--fail-if', 'growth>30%'])).code).toBe(0);
  });

  it('does not pass a rule that it cannot judge', async () => {
    const { code, stderr } = await weir(['diff', before, after, '--fail-if', 'reserved-growth>2%']);
    expect([code, stderr]).toEqual([3, 'weir: reserved-growth is unknown, so the rule reserved-growth>2% cannot be judged\n']);
  });

  it('refuses what it does not understand', async () => {
    const rule = await weir(['diff', before, after, '--fail-if', 'growth>2']);
    expect(rule.code).toBe(2);
    expect(rule.stderr).toContain("'growth>2' has no unit; write growth>2%");
    expect((await weir(['diff', before])).code).toBe(2);
    expect((await weir(['diff', before, after, '--by', 'luck'])).code).toBe(2);
    expect((await weir(['diff', '-', '-'])).stderr).toContain('standard input can be read only once');
    expect(await weir(['diff', before, join(folder, 'none.weir')])).toMatchObject({
      code: 3,
      stderr: expect.stringContaining('there is no such file'),
    });
  });

  it('reads one of both from a pipe', async () => {
    const { code, stdout } = await weir(['diff', before, '-'], { input: readFileSync(after) });
    expect(code).toBe(0);
    expect(stdout).toContain('What grew most: proj/model.py:13 forward');
  });

  it('compares by step only if both have steps', async () => {
    const single = recorded('single.weir', { steps: 1, marks: 'none' });
    const { code, stderr } = await weir(['diff', single, after, '--by', 'step']);
    expect(code).toBe(3);
    expect(stderr).toContain('the first run has no steps that can be told apart');
    expect((await weir(['diff', single, after])).stdout).toContain('Compared at the peaks of both runs, because');
  });

  it('explains itself', async () => {
    const { stdout } = await weir(['diff', '--help']);
    expect(stdout).toContain('weir diff yesterday.weir today.weir');
    expect(stdout).toMatch(/ {2}growth +growth of live memory at the moment compared/);
  });

  it('prints no control characters of a recording', async () => {
    const hostile = recorded('hostile.weir', { project: '/home/\u001b[2Jme', forward: MORE });
    const { stdout } = await weir(['diff', before, hostile]);
    expect(stdout).not.toContain('\u001b');
    expect(stdout).toContain('\\u001b[2Jme');
  });
});

describe('weir diff of several ranks', () => {
  it('leaves out files about out-of-memory errors that lie beside the recordings', async () => {
    recorded('calm/train.4000.weir');
    for (const name of ['train.4100', 'oom.4100', 'oom.4100.last']) recorded(`failed/${name}.weir`, { forward: MORE });
    const [calm, failed] = [join(folder, 'calm'), join(folder, 'failed')];
    const { stdout, stderr } = await weir(['diff', calm, failed]);
    expect(stderr).toBe('');
    expect(stdout).toContain(`Left out, as files about out-of-memory errors: ${failed}/oom.4100.last.weir, ${failed}/oom.4100.weir.\n`);
    expect(stdout).toContain(`B: ${failed}/train.4100.weir, `);
    const { ranks, alone, leftOut } = JSON.parse((await weir(['diff', calm, failed, '--json'])).stdout);
    expect([ranks.length, alone, leftOut.length]).toEqual([1, [], 2]);
  });

  it('compares files about out-of-memory errors if a folder has nothing else, one of each rank', async () => {
    for (const rank of [0, 1]) {
      for (const name of [`oom.${rank}.41`, `oom.${rank}.41.last`, `train.r${rank}.41`]) recorded(`some/${name}.weir`);
      recorded(`only/oom.${rank}.52.weir`, { forward: MORE });
    }
    const { ranks, pairedBy } = JSON.parse((await weir(['diff', join(folder, 'some'), join(folder, 'only'), '--json'])).stdout);
    expect(pairedBy).toBe('ranks');
    const files = ranks.map((rank: { before: { file: string }; after: { file: string } }) => [rank.before.file, rank.after.file]);
    expect(files).toEqual([0, 1].map((rank) => [join(folder, `some/oom.${rank}.41.weir`), join(folder, `only/oom.${rank}.52.weir`)]));
  });

  it('pairs the recordings of two folders by rank, and shows the one that grew most', async () => {
    for (const rank of [0, 1, 2]) {
      recorded(`a/train.node1.r${rank}.${4000 + rank}.weir`);
      recorded(`b/train.node7.r${rank}.${9000 - rank}.weir`, rank === 1 ? { forward: MORE } : {});
    }
    symlinkSync('train.node1.r0.4000.weir', join(folder, 'a/latest.weir'));
    writeFileSync(join(folder, 'a/notes.txt'), 'not a recording');
    const { code, stdout } = await weir(['diff', join(folder, 'a'), join(folder, 'b')]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^3 ranks\n/);
    expect(stdout).toMatch(/r1\.4001\.weir .*r1\.8999\.weir .*\+15 MiB .*proj\/model\.py:13 forward \(worst\)\n/);
    expect(stdout).toContain('Recordings are paired by the ranks in their names.');
    expect(stdout).toContain('The rank that grew most:');
    const json = JSON.parse((await weir(['diff', join(folder, 'a'), join(folder, 'b'), '--json'])).stdout);
    expect(json).toMatchObject({ schema: 1, pairedBy: 'ranks', alone: [], worst: { growth: 15 * MIB } });
    expect(json.ranks.map((rank: { growth: number }) => rank.growth)).toEqual([0, 15 * MIB, 0]);
  });

  it('says which recordings have no partner', async () => {
    for (const rank of [0, 1]) recorded(`c/rank${rank}.weir`);
    recorded('d/rank0.weir');
    const { stdout } = await weir(['diff', join(folder, 'c'), join(folder, 'd')]);
    expect(stdout).toContain(`Recordings are paired by their names. Without a partner: ${join(folder, 'c/rank1.weir')}.`);
    const guarded = await weir(['diff', join(folder, 'c'), join(folder, 'd'), '--fail-if', 'growth>2%']);
    expect([guarded.code, guarded.stderr]).toEqual([
      3,
      `weir: no rule can be judged for recordings without a partner: ${join(folder, 'c/rank1.weir')}\n`,
    ]);
  });

  it('names GPUs that only one of two files has', async () => {
    const symbols = new Symbols();
    const [one, two] = [train({ symbols, device: 0 }), train({ symbols, device: 1 })];
    const [both, first] = [write('both.weir', one, two), write('first.weir', one)];
    const { code, stdout, stderr } = await weir(['diff', first, both, '--fail-if', 'growth>2%']);
    expect(code).toBe(3);
    expect(stdout).toContain(`Without a partner: ${both}, GPU 1.\n`);
    expect(stderr).toContain(`recordings without a partner: ${both}, GPU 1\n`);
    const json = JSON.parse((await weir(['diff', first, both, '--json'])).stdout);
    expect([json.ranks.length, json.alone]).toEqual([1, [`${both}, GPU 1`]]);
    // One GPU each is a pair, whatever its number.
    expect((await weir(['diff', first, both, '--gpu', '0', '--fail-if', 'growth>2%'])).code).toBe(0);
  });

  it('refuses folders that cannot be paired', async () => {
    for (const name of ['x', 'y']) recorded(`e/${name}.weir`);
    recorded('f/z.weir');
    mkdirSync(join(folder, 'empty'));
    const unpaired = await weir(['diff', join(folder, 'e'), join(folder, 'f')]);
    expect(unpaired.code).toBe(3);
    expect(unpaired.stderr).toContain('their names do not tell which belong together');
    expect((await weir(['diff', join(folder, 'e'), before])).stderr).toContain('is a folder with several recordings');
    expect((await weir(['diff', join(folder, 'empty'), before])).stderr).toContain('has no recordings');
  });

  it('compares the GPUs of two files one by one', async () => {
    const two = (name: string, options: TrainingOptions) => {
      const symbols = new Symbols();
      return write(name, train({ symbols, device: 0 }), train({ symbols, device: 1, ...options }));
    };
    const [a, b] = [two('two-a.weir', {}), two('two-b.weir', { forward: MORE })];
    const { stdout } = await weir(['diff', a, b]);
    expect(stdout).toMatch(/two-b\.weir +1 .*\+15 MiB/);
    expect((await weir(['diff', a, b, '--gpu', '0'])).stdout).toContain('Live memory is the same to the byte');
    const broken = await weir(['diff', a, b, '--fail-if', 'growth>2%']);
    expect([broken.code, broken.stderr]).toEqual([1, `weir: ${b}, GPU 1: growth is 20.4 % (rule: growth>2%)\n`]);
  });
});
