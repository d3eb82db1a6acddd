// `weir plan` and `weir verify` as a user runs them.
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { weir } from '../support/command.ts';

const folder = mkdtempSync(join(tmpdir(), 'weir-plan-'));
afterAll(() => rmSync(folder, { recursive: true }));

const RESNET = 'samples/resnet50-b100.native.pickle.gz';
const VGG = 'samples/vgg16-b100.native.pickle.gz';

function file(name: string, content: string): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

const BUFFERS = file('buffers.csv', 'id,lower,upper,size\na,0,4,4\nb,0,2,8\nc,2,4,8\nd,1,3,4\n');

/** Two steps in which b lies idle while the peak passes. */
const ACCESSES = file(
  'accesses.json',
  JSON.stringify({
    steps: [0, 1, 2].map((step) => [step * 1000, step * 1000 + 1000]),
    ops: [0, 1, 2].flatMap((step) => [
      [step * 1000 + 10, step * 1000 + 20, 'write', [], [4096 + step * 65536]],
      [step * 1000 + 900, step * 1000 + 950, 'read', [4096 + step * 65536], []],
    ]),
    trace: [0, 1, 2].flatMap((step) => [
      [step * 1000 + 5, 'alloc', 4096 + step * 65536, 8 * 2 ** 20, 0],
      [step * 1000 + 400, 'alloc', 2 ** 30 + step * 65536, 16 * 2 ** 20, 0],
      [step * 1000 + 500, 'free_completed', 2 ** 30 + step * 65536, 16 * 2 ** 20, 0],
      [step * 1000 + 960, 'free_completed', 4096 + step * 65536, 8 * 2 ** 20, 0],
    ]),
  }),
);

describe('weir plan', () => {
  it('says that there is no file where there is no plan', async () => {
    const path = join(folder, 'none.plan');
    const { code, stdout, stderr } = await weir(['plan', 'samples/gpt2xl-oom.pickle.gz', '-o', path]);
    expect([code, stdout]).toEqual([1, expect.stringContaining('not periodic')]);
    expect(stderr).toContain(`${path} was not written: there is no plan`);
    expect((await weir(['plan', 'samples/gpt2xl-oom.pickle.gz'])).code).toBe(1);
  });

  it('lays out buffers and writes a plan that verifies', async () => {
    const plan = join(folder, 'buffers.plan');
    const made = await weir(['plan', BUFFERS, '-o', plan, '--json']);
    expect(made.code).toBe(0);
    expect(JSON.parse(made.stdout)).toMatchObject({
      schema: 1,
      buffers: 4,
      lowerBound: 16,
      footprint: 16,
      ratio: 1,
      periodic: false,
      verified: true,
    });
    expect(await weir(['verify', plan, BUFFERS])).toMatchObject({ code: 0, stdout: expect.stringMatching(/^correct:/) });
  });

  it('finds the step of a training run and plans it with no holes', async () => {
    const plan = join(folder, 'resnet.plan');
    const { code, stdout, stderr } = await weir(['plan', RESNET, '-o', plan]);
    expect(code).toBe(0);
    expect(stderr).toContain(`to check it: weir verify ${plan} ${RESNET}`);
    expect(stdout).toContain('exactly the lower bound');
    expect(stdout).toContain('exactly the peak of 8.34 GiB live');
    expect(stdout).toContain('└──');
    expect(await weir(['verify', plan, RESNET])).toMatchObject({ code: 0 });
    const other = await weir(['verify', plan, VGG]);
    expect(other).toMatchObject({
      code: 1,
      stdout: expect.stringMatching(/^wrong:.*\n {2}the step of the plan ends at operation 4636, but the recording has only 1975/),
    });
    const refused = await weir(['plan', RESNET, '-o', plan]);
    expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('-f overwrites it') });
  });

  it('says when a run does not repeat itself', async () => {
    const { code, stdout } = await weir(['plan', 'samples/gpt2xl-oom.pickle.gz', '--json']);
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({ periodic: false, verified: false, reason: expect.stringContaining('repeats') });
  });

  it('plans swaps from accesses', async () => {
    const plan = join(folder, 'swaps.plan');
    const { code, stdout } = await weir(['plan', ACCESSES, '--swap', '--json', '--budget', '1', '-o', plan]);
    expect(code).toBe(0);
    const answer = JSON.parse(stdout);
    expect(answer).toMatchObject({ schema: 1, peak: 24 * 2 ** 20, zeroStallLimit: 16 * 2 ** 20, overhead: 0, verified: true });
    expect(answer.bytesMoved).toBeGreaterThan(0);
    expect(await weir(['verify', plan, ACCESSES])).toMatchObject({ code: 0 });
    // A slow link cannot carry it out and back in time.
    const slow = await weir(['plan', ACCESSES, '--swap', '--json', '--budget', '1', '--bandwidth', '1GB']);
    expect(JSON.parse(slow.stdout).zeroStallLimit).toBe(24 * 2 ** 20);
  });

  it.each([
    ['12MiB', '1GB', /^weir: no swap plan keeps 12 MiB, even if the job waits; without waiting, the lowest limit is 24 MiB\n/],
    ['20MiB', '20GB', /^weir: no swap plan keeps 20 MiB unless the job waits; without waiting, the lowest limit is 24 MiB\n/],
  ])('has no swap plan for a limit of %s, with and without a file', async (limit, bandwidth, message) => {
    const path = join(folder, `${limit}.plan`);
    const parameters = ['plan', ACCESSES, '--swap', '--limit', limit, '--bandwidth', bandwidth, '--budget', '1'];
    for (const more of [[], ['-o', path], ['--json'], ['--json', '-o', path]]) {
      const { code, stdout, stderr } = await weir([...parameters, ...more]);
      expect([code, stderr]).toEqual([1, expect.stringMatching(message)]);
      expect(existsSync(path)).toBe(false);
      if (more[0] === '--json') expect(JSON.parse(stdout)).toMatchObject({ verified: false, zeroStallLimit: 24 * 2 ** 20 });
      else expect(stdout).toMatch(/^zero stall .*\nbound .*\nstep .*\n$/);
    }
  });

  it('shows only limits that it can write', async () => {
    const { stdout } = await weir(['plan', ACCESSES, '--swap', '--budget', '1', '--bandwidth', '10GB']);
    expect(stdout).not.toMatch(/slower/);
  });

  it('finds the step of a trace of the AutoSwap study by itself', async () => {
    // Four steps of 80 events, in which a block lies idle while another makes the peak; then what is left is freed.
    const rows: string[] = [];
    let time = 0n;
    const add = (operation: string, pointer: number, mib: number, us: number) => {
      rows.push(`${operation} 0x${pointer.toString(16)} ${mib * 2 ** 20} ${1_500_000_000_000_000_000n + time * 1000n}`);
      time += BigInt(us);
    };
    for (let step = 0; step < 4; step++) {
      add('Malloc', 16, 64, 100);
      add('Mutable', 16, 64, 100);
      for (let index = 0; index < 38; index++) {
        const mib = 2 + Math.min(index, 37 - index);
        add('Malloc', 32 + index, mib, 2000);
        add('Free', 32 + index, mib, 100);
      }
      add('Read', 16, 64, 100);
      add('Free', 16, 64, 100);
    }
    add('Read', 99, 1, 1);
    const { code, stdout } = await weir([
      'plan',
      file('autoswap.txt', rows.join('\n')),
      '--swap',
      '--link',
      'autoswap',
      '--json',
      '--budget',
      '1',
    ]);
    expect(code).toBe(0);
    const answer = JSON.parse(stdout);
    expect(answer).toMatchObject({ peak: 84 * 2 ** 20, overhead: 0, verified: true });
    expect(answer.zeroStallLimit).toBeLessThan(answer.peak);
    expect(answer.bytesMoved).toBeGreaterThan(0);
  });

  it('finds a plan that was tampered with', async () => {
    const plan = join(folder, 'tampered.plan');
    await weir(['plan', BUFFERS, '-o', plan]);
    const content = JSON.parse(readFileSync(plan, 'utf8'));
    for (const buffer of content.buffers) buffer.offset = 0;
    writeFileSync(plan, JSON.stringify(content));
    const { code, stdout } = await weir(['verify', plan, BUFFERS]);
    expect(code).toBe(1);
    expect(stdout).toMatch(/^wrong: .*\n {2}at time \d+ buffers .* share bytes\n/);
  });

  it('finds a plan wrong that would destroy data, is empty or lacks a block', async () => {
    const plan = join(folder, 'forged.plan');
    expect(await weir(['plan', VGG, '-o', plan, '--budget', '0'])).toMatchObject({ code: 0 });
    const content = readFileSync(plan, 'utf8');
    const forged = async (change: (blocks: { birth: number; death: number; offsets: number[] }[]) => void) => {
      const data = JSON.parse(content);
      change(data.blocks);
      writeFileSync(plan, JSON.stringify(data));
      return weir(['verify', plan, VGG]);
    };
    const wrong = (message: RegExp) => ({ code: 1, stdout: expect.stringMatching(message), stderr: '' });
    const destructive = await forged((blocks) => {
      for (const block of blocks) {
        block.offsets = [0];
        block.death = block.birth + 1;
      }
    });
    expect(destructive).toMatchObject(wrong(/ dies at \d+ in the plan and at \d+ in the recording\n/));
    expect(await forged((blocks) => blocks.splice(0))).toMatchObject(wrong(/\n {2}the plan lacks 159 of the 159 blocks/));
    expect(await forged((blocks) => blocks.splice(80, 1))).toMatchObject(wrong(/\n {2}the plan lacks 1 of the 159 blocks/));
    const overlapping = await forged((blocks) => {
      for (const block of blocks) block.offsets = [0];
    });
    expect(overlapping).toMatchObject(wrong(/share bytes/));
    // A file that cannot be used is another matter.
    writeFileSync(plan, content.replace('"period":318', '"period":"long"'));
    expect(await weir(['verify', plan, VGG])).toMatchObject({
      code: 3,
      stderr: expect.stringMatching(/period of the plan must be a whole number/),
    });
  });

  it.each([
    [['plan', VGG, '--swap'], 3, /does not say which operators read and write which memory/],
    [['plan', ACCESSES], 3, /add --swap/],
    [['plan', VGG, '--limit', '4GiB'], 2, /--limit needs --swap/],
    [['plan', BUFFERS, '--threads', '0'], 2, /not a number of threads/],
    [['plan', BUFFERS, '--budget', 'long'], 2, /not a number of seconds/],
    [['verify', BUFFERS, BUFFERS], 3, /the file is a list of buffers, not a plan/],
    [['plan', join(folder, 'nowhere.csv')], 3, /there is no such file/],
  ])('%j is refused', async (parameters, expected, message) => {
    const { code, stderr } = await weir(parameters);
    expect(code).toBe(expected);
    expect(stderr).toMatch(message);
  });
});

describe('planned, in replay', () => {
  it('follows the plan on a run that repeats itself', async () => {
    const { stdout } = await weir(['replay', VGG, '--allocator', 'planned,expandable', '--json']);
    const [planned, expandable] = JSON.parse(stdout).results;
    expect(planned.allocator).toBe('planned');
    expect(planned.reservedOverLive).toBeLessThan(1.02);
    expect(planned.peakReserved).toBeLessThan(expandable.peakReserved);
  });
});
