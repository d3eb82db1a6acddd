// `weir fit` as a user runs it: over recordings, and over a command that needs no GPU.
import { execFile } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { identityOf, isAlive } from '../../src/run/child/folder-owner.ts';
import { writeWeir } from '../../src/trace/weir/writer.ts';
import { type Program, runProgram } from '../fit/program.ts';
import { outcomeOf, ROOT, weir } from '../support/command.ts';
import { RunFolder } from '../support/run-folder.ts';

const run = new RunFolder();
const MIB = 1024 * 1024;
const JOB = new URL('build/test/cli/fit-job.js', ROOT).pathname;
const job = (...words: string[]) => ['--', process.execPath, JOB, ...words];

const program: Program = {
  layers: [
    { weight: 30 * MIB, saved: (batch) => 5 * MIB * batch!, workspace: (batch) => 700_000 * batch! },
    { weight: 50 * MIB, saved: (batch) => 9 * MIB * batch!, workspace: () => 4 * MIB },
  ],
  steps: 4,
  hasStacks: true,
  hasMarks: true,
  hasState: true,
};

function hasText(path: string): boolean {
  return existsSync(path) && readFileSync(path, 'utf8') !== '';
}

function recording(name: string, of: Program, ...values: number[]): string {
  const path = join(run.path, name);
  const chunks: Uint8Array[] = [];
  writeWeir({ format: 'weir', traces: [runProgram(of, ...values)] }, (chunk) => chunks.push(chunk.slice()));
  writeFileSync(path, Buffer.concat(chunks));
  return path;
}

describe('from recordings', () => {
  it('says the largest value, what is left and what grows', async () => {
    const files = [recording('b4.weir', program, 4), recording('b8.weir', program, 8)];
    const { code, stdout, stderr } = await weir(['fit', ...files, '--values', '4,8', '--gpu', '2GiB', '--at', '20,40']);
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toMatch(/^The largest value that fits in 2.00 GiB, from runs of 4 and 8:\n/);
    expect(stdout).toMatch(/\n {2}weir +\d+ +[\d.]+ (GiB|MiB) +[\d.]+ (MiB|KiB|B)/);
    expect(stdout).toMatch(/\n +9 MiB .* value +user\/train.py:1 forward\n/);
    expect(stdout).toContain('The runs settle the sizes of 100.0 % of');
  });

  it('says the same as JSON, and the real run of the answer fits', async () => {
    const files = [recording('b4.weir', program, 4), recording('b8.weir', program, 8)];
    const { stdout } = await weir(['fit', ...files, '--values', '4,8', '--gpu', '2GiB', '--json']);
    const answer = JSON.parse(stdout);
    expect(answer).toMatchObject({ schema: 1, searched: 'value', runs: [[4], [8]], learned: { unsettled: 0, unpaired: 0 } });
    for (const { allocator, largest, largestPossible, peak } of answer.results) {
      expect(largestPossible).toBe(largest);
      const real = recording('real.weir', program, largest);
      const replayed = JSON.parse((await weir(['replay', real, '--allocator', allocator, '--json'])).stdout);
      expect(peak.peakReserved).toBe(replayed.results[0].peakReserved);
    }
  });

  it('writes the synthesised run', async () => {
    const files = [recording('b4.weir', program, 4), recording('b8.weir', program, 8)];
    const made = join(run.path, 'made.weir');
    const fit = ['fit', ...files, '--values', '4,8', '--gpu', '2GiB', '--write', made];
    expect((await weir(fit)).stderr).toBe(`wrote ${made}; to see it: weir serve ${made}\n`);
    expect((await weir(['analyze', made, '--json'])).code).toBe(0);
    expect(await weir(fit)).toMatchObject({ code: 2, stderr: `weir: ${made} exists; -f overwrites it\n` });
  });

  it('has a table for two parameters', async () => {
    const two: Program = {
      ...program,
      layers: [
        { weight: MIB, saved: (batch, length) => 4096 * batch! * length!, workspace: (batch, length) => batch! * length! * length! },
      ],
    };
    const points = [
      [2, 128],
      [4, 128],
      [2, 256],
      [4, 256],
    ] as const;
    const files = points.map((point) => recording(`${point.join('-')}.weir`, two, ...point));
    const values = ['--values', points.map((point) => point.join('x')).join(), '--names', 'batch,length'];
    const { stdout, stderr } = await weir(['fit', ...files, ...values, '--gpu', '1GiB']);
    expect(stderr).toBe('');
    expect(stdout).toContain('The largest batch that fits in 1.00 GiB at length 256, from runs of 2 x 128');
    expect(stdout).toContain('The largest batch by length:');
    expect(stdout).toMatch(/\n {3}1,024 +\d+ +\d+ +\d+\n/);
    const lengths = join(run.path, 'lengths.txt');
    const draw = ['fit', ...files, ...values, '--gpu', '1GiB', '--lengths', lengths];
    writeFileSync(lengths, Array.from({ length: 2000 }, (_, index) => (index < 3 ? 4000 : 300 + (index % 40))).join('\n'));
    const drawn = await weir(draw);
    expect(drawn.stdout).toContain(`The longest step of 1,000 epochs, with lengths drawn from ${lengths} (2,000 samples):\n`);
    expect(drawn.stdout).toMatch(/\n +\d+ +fits in all +fits in all +fits in all\n/);
    expect(drawn.stdout).toMatch(/fails in \d+\.\d %/);
    // As many as large data sets have samples.
    writeFileSync(lengths, '400000\n'.repeat(300_000));
    expect((await weir(draw)).stdout).toContain('(300,000 samples):\n');
    for (const [path, sentence] of [
      ['/dev/zero', '/dev/zero is larger than 64 MiB; a part of its lengths is enough'],
      [run.path, `${run.path} is a folder; give a file with one whole number per line`],
    ])
      expect(await weir([...draw.slice(0, -1), path!])).toMatchObject({ code: 3, stderr: `weir: ${sentence}\n`, stdout: '' });
    writeFileSync(lengths, '12\nlong\n');
    expect(await weir(draw)).toMatchObject({
      code: 3,
      stderr: `weir: ${lengths}: 'long' is not a length; write one whole number per line\n`,
    });
  });

  it.each([
    [['--gpu', '2GiB'], 2, 'give the value of each recording, like --values 4,8'],
    [
      ['--values', '4', '--gpu', '2GiB'],
      2,
      'there are 2 recordings and 1 values; give each recording its value, like weir fit a.weir b.weir --values 4,8',
    ],
    [['--values', '4,4', '--gpu', '2GiB'], 2, 'all runs have the value 4, which shows no growth; give runs of two values or more'],
    [['--values', '4,8', '--gbu', '2GiB'], 2, 'there is no option --gbu; see weir fit --help'],
    [['--values', '4,8'], 2, 'the recordings do not say how much memory their GPU has; add --gpu SIZE'],
    [['--values', '8,4', '--gpu', '2GiB'], 3, 'the run of 8 requests less than that of 4; are the values in the order of the runs?'],
    [['--values', '4,8', '--gpu', '2GiB', '--confirm'], 2, '--confirm is for a command; recordings have --values'],
    [['--values', '4,8', '--gpu', '2GiB', '--at', '4x5'], 2, '--at 4x5 needs one value'],
    [['--values', '4,8', '--gpu', '2GiB', '--table', '5'], 2, '--table is for two parameters, such as batch and length'],
    [['--values', '4,8', '--gpu', '2GiB', '--lengths', 'none'], 2, '--lengths needs two parameters, batch and length in this order'],
    [['--values', '4,8', '--gpu', '2GiB', '--names', 'a,b'], 2, '--names has 2 names, but each run has one value'],
  ])('refuses %j with a sentence', async (parameters, code, sentence) => {
    const files = [recording('b4.weir', program, 4), recording('b8.weir', program, 8)];
    expect(await weir(['fit', ...files, ...parameters])).toMatchObject({ code, stderr: `weir: ${sentence}\n`, stdout: '' });
  });

  it.each([
    [['--values', '4,8x'], "argument '4,8x' is invalid. '8x' is not a value such as 8 or 4x512"],
    [['--values', '4,1.5'], "'1.5' is not a value such as 8 or 4x512"],
    [['--values', '0,4'], "'0' is not a whole number above 0"],
    [['--values', '4,8', '--gpu', '24'], 'a GPU has more than 24 bytes; write a unit, like 24GiB'],
    [['--values', '4,8', '--steps', '1'], 'one step is too few: optimizers make their state at its end'],
  ])('refuses %j', async (parameters, sentence) => {
    const { code, stderr, stdout } = await weir(['fit', 'a.weir', 'b.weir', ...parameters]);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toContain(sentence);
  });

  it('tells what is wrong with a recording that was cut', async () => {
    const files = [recording('b4.weir', program, 4), recording('b8.weir', program, 8)];
    const whole = readFileSync(files[1]!);
    writeFileSync(files[1]!, whole.subarray(0, whole.length - 8));
    const cut = await weir(['fit', ...files, '--values', '4,8', '--gpu', '2GiB']);
    expect(cut.code).toBe(0);
    expect(cut.stdout).toMatch(/\nwarning: the run of 8: /);
    // Without a whole step, the largest run says nothing about the peak.
    recording('b8.weir', { ...program, hasMarks: false, steps: 1 }, 8);
    const short = await weir(['fit', ...files, '--values', '4,8', '--gpu', '2GiB']);
    expect(short).toMatchObject({
      code: 3,
      stderr: 'weir: the run of 8 has no whole step, and that of 4 has 4; record it again for as many steps\n',
    });
  });

  it('reads a recording from the input', async () => {
    const files = [recording('b4.weir', program, 4), recording('b8.weir', program, 8)];
    const command = `${process.execPath} ${new URL('dist/cli/main.js', ROOT).pathname} fit - ${files[1]} --values 4,8 --gpu 2GiB < ${files[0]}`;
    const { stdout } = await promisify(execFile)('sh', ['-c', command]);
    expect(stdout).toMatch(/^The largest value that fits in 2.00 GiB, from runs of 4 and 8:\n/);
  });

  it('refuses recordings of different programs, and one recording', async () => {
    const other = { ...program, layers: [{ weight: 3, saved: () => 777_777_777, workspace: () => 5_555_555 }] };
    const files = [recording('b4.weir', program, 4), recording('other.weir', other, 8)];
    const { code, stderr } = await weir(['fit', ...files, '--values', '4,8', '--gpu', '2GiB']);
    expect([code, stderr]).toEqual([3, expect.stringMatching(/^weir: the runs of 4 and 8 are not the same program: .*\n$/)]);
    // Alike in size, and by chance some blocks look like those of the other: most of the first has no counterpart.
    const networks = ['vgg16', 'resnet50'].map((name) => new URL(`samples/${name}-b100.native.pickle.gz`, ROOT).pathname);
    const differing = await weir(['fit', ...networks, '--values', '4,8', '--gpu', '2GiB']);
    expect([differing.code, differing.stderr]).toEqual([
      3,
      expect.stringMatching(/^weir: the runs of 4 and 8 are not the same program: .*\n$/),
    ]);
    const alone = await weir(['fit', files[0]!, '--values', '4', '--gpu', '2GiB']);
    expect(alone).toMatchObject({ code: 2, stderr: 'weir: one value shows no growth; give runs of two values or more\n' });
  });
});

describe('from a command', () => {
  it('tries small values, checks them with a third, and takes the GPU of the machine', async () => {
    const { code, stdout, stderr } = await run.weir(['fit', ...job('--batch', '{}')]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^The largest value that fits in 1000 MiB, from runs of 2, 4 and 12:\n/);
    expect(stderr).toContain('weir: 2: 4 steps, peak reserved');
    expect(stderr).toContain('weir: the run of 12 is as the smaller ones predict');
    expect(readdirSync(run.temporary)).toEqual([]);
  });

  it('takes the values and the GPU that it is given, and keeps the recordings', async () => {
    const kept = join(run.path, 'kept');
    const { stdout } = await run.weir([
      'fit',
      '--try',
      '3,5',
      '--gpu',
      '600MiB',
      '--keep',
      kept,
      '--json',
      ...job('--batch={}', '--batch', '{}'),
    ]);
    expect(JSON.parse(stdout)).toMatchObject({ gpuBytes: 600 * MIB, runs: [[3], [5]], repeats: 3 });
    expect(readdirSync(kept).filter((name) => /^pytorch-[35]\.\d+\.weir$/.test(name))).toHaveLength(2);
  });

  it('finds sizes that double, which look proportional at powers of two', async () => {
    const { stdout } = await run.weir(['fit', '--json', ...job('--batch', '{}', 'doubling')]);
    const { runs, learned, results } = JSON.parse(stdout);
    expect(runs.slice(0, 3)).toEqual([[2], [4], [12]]);
    expect(learned.unsettled).toBeGreaterThan(0);
    // 40 MiB of weights and 12 MiB for each of the batch, which is rounded up to a power of two.
    expect(results[2].largest).toBeLessThanOrEqual(64);
    expect(results[2].largestPossible).toBeGreaterThanOrEqual(64);
  });

  it('tries only multiples, if asked to', async () => {
    const { stdout } = await run.weir(['fit', '--multiple', '6', ...job('--batch', '{}')]);
    expect(stdout).toMatch(/^The largest value that fits in 1000 MiB, from runs of 6, 12 and 30:\n/);
  });

  it('goes on trying if the third is not as predicted', async () => {
    const { stdout, stderr } = await run.weir(['fit', ...job('--batch', '{}', 'kernels')]);
    expect(stdout).toMatch(/^The largest value that fits in 1000 MiB, from runs of 2, 4, 12/);
    expect(stderr).toMatch(/weir: the run of 12 has [\d.]+ MiB live at its peak, and the smaller ones predict [\d.]+ MiB to [\d.]+ MiB\n/);
  });

  it('confirms the answer by running it and the next value', async () => {
    const parameters = ['fit', '--try', '2,4', '--gpu', '600MiB', '--allocator', 'weir', '--confirm', '--json'];
    const { code, stdout, stderr } = await run.weir([...parameters, ...job('--batch', '{}')]);
    const { confirmations, results } = JSON.parse(stdout);
    // 40 MiB of weights, 12 MiB for each of the batch. The workspace of the last layer is gone before the peak.
    expect(results[0].largest).toBeGreaterThan(30);
    expect(confirmations).toMatchObject([
      { allocator: 'weir', value: results[0].largest, fits: true, next: results[0].largest + 1, nextFits: false, otherFailure: null },
    ]);
    expect(stderr).toMatch(
      /weir: confirmed on weir: right: \d+ fits in 600 MiB \(peak reserved [\d.]+ MiB, predicted [\d.]+ MiB\), \d+ does not\n/,
    );
    expect(code).toBe(0);
  });

  it('says what --swap auto adds, and confirms it with a run that swaps', async () => {
    const parameters = ['fit', '--try', '2,4', '--gpu', '600MiB', '--allocator', 'weir', '--confirm'];
    const { code, stdout, stderr } = await run.weir([...parameters, ...job('--batch', '{}', 'state')]);
    const [, plain, swap] = /\n {2}weir +(\d+) .*\n {2}weir --swap auto +\1 to (\d+) /.exec(stdout)!;
    // Each of the batch takes 15 MiB at the peak, and the state 120 MiB.
    expect(Number(swap) - Number(plain)).toBe(8);
    expect(stdout).toContain(
      `weir --swap auto: if memory runs short, 120 MiB of optimizer state can be swapped out between steps, and ${swap} fits.`,
    );
    // A swap-out is no retry, and the range of this row is explained by its own sentence.
    expect(stdout).not.toMatch(/retries:|A to B/);
    expect(stderr).toContain(`weir: confirmed on weir: right: ${plain} fits in 600 MiB`);
    expect(stderr).toContain(`weir: confirmed on weir --swap auto: right: ${swap} fits in 600 MiB`);
    expect(code).toBe(0);
  });

  it('says if a run failed for another reason', async () => {
    const parameters = ['fit', '--try', '2,4', '--gpu', '600MiB', '--allocator', 'weir', '--confirm'];
    const { code, stderr } = await run.weir([...parameters, ...job('--batch', '{}', 'crash-above', '4')]);
    expect(stderr).toContain(
      'weir: not confirmed on weir: a run failed, but not for lack of memory (exit code 3: ValueError: the batch is too large for the dataset)\n',
    );
    expect(code).toBe(1);
  });

  it('has several parameters', async () => {
    const words = ['--batch', '{batch}', '--length', '{length}'];
    const { stdout } = await run.weir(['fit', '--try', '2x1,4x1,2x2,4x2', '--table', '1,2,4', ...job(...words)]);
    expect(stdout).toContain('The largest batch that fits in 1000 MiB at length 2');
    expect(stdout).toContain('The largest batch by length:');
    expect((await run.weir(['fit', ...job(...words)])).stderr).toBe(
      'weir: the command has 2 parameters, so name the values to run, in the order batch, length: --try 4x512,8x512,4x1024,8x1024\n',
    );
  });

  it('draws lengths that come through a pipe', async () => {
    const fit = `${process.execPath} ${new URL('dist/cli/main.js', ROOT).pathname} fit -q --gpu 300MiB --try 2x1,4x1,2x2,4x2 --lengths /dev/stdin`;
    const command = `seq 1 40 | ${fit} ${job('--batch', '{batch}', '--length', '{length}').join(' ')}`;
    const { stdout } = await promisify(execFile)('sh', ['-c', command], { env: run.environment });
    expect(stdout).toMatch(/with lengths drawn from \/dev\/stdin \(40 samples\):\n/);
  });

  it.each([
    [['--batch', '4'], [], 2, 'the command has no {}; write {} where the value goes, like weir fit -- python train.py --batch-size {}'],
    [
      ['--batch', '{}', 'talk'],
      [],
      125,
      `the run of 2 failed (exit code 1): ${`ValueError: ${'of a long tensor '.repeat(20)}`.slice(0, 300)}...; to see all that it prints: ${process.execPath} ${JOB} --batch 2 talk`,
    ],
    [
      ['--batch', '{}', 'fail'],
      [],
      125,
      `the run of 2 failed (exit code 1): Traceback: no such dataset; to see all that it prints: ${process.execPath} ${JOB} --batch 2 fail`,
    ],
    ...[1, 2].map((least): [string[], string[], number, string] => [
      ['--batch', '{}', 'fail-above', String(least)],
      [],
      125,
      `the run of ${2 * least} failed (exit code 1): torch.OutOfMemoryError: CUDA out of memory; try smaller values with --try, or see what takes the memory with weir record`,
    ]),
    [
      ['--batch', '{}', 'no-steps'],
      [],
      125,
      'no optimizer step was seen in the run of 2; call weir_gpu.step() at the start of each step, or add --whole to take the run as it is',
    ],
    [['--batch', '{}'], ['--try', '4'], 2, '--try needs two values or more: one value shows no growth'],
    [['--batch', '{}'], ['--try', '4,4'], 2, 'all runs have the value 4, which shows no growth; give runs of two values or more'],
    [
      ['--batch', '{}', 'one-step'],
      [],
      125,
      'the run of 2 has one step only, which ends before optimizer state is there at a peak; let it run for two steps or more, or add --whole to take it as it is',
    ],
    [['--batch', '{}'], ['--try', '4x4,8x8'], 2, '--try 4x4 needs a value for each of value, with x between them'],
    [['--batch', '{}'], ['--names', 'batch'], 2, '--names is for recordings; a command names its parameters, like {batch}'],
  ])('refuses %j %j with a sentence', async (words, parameters, code, sentence) => {
    expect(await run.weir(['fit', '-q', ...parameters, ...job(...words)])).toMatchObject({
      code,
      stderr: `weir: ${sentence}\n`,
      stdout: '',
    });
    expect(readdirSync(run.temporary)).toEqual([]);
  });

  it.each([
    [['--at', '4x5'], ['--batch', '{}'], 2, '--at 4x5 needs one value'],
    [['--table', '1,2'], ['--batch', '{}'], 2, '--table is for two parameters, such as batch and length'],
    [['--lengths', 'none'], ['--batch', '{}'], 2, '--lengths needs two parameters, batch and length in this order'],
    [['--try', '2x1,4x1,2x2,4x2', '--lengths', 'none'], ['--batch', '{batch}', '--length', '{length}'], 3, 'none: there is no such file'],
    [['--bogus'], ['--batch', '{}'], 2, 'there is no option --bogus; see weir fit --help'],
    [['--values', '2,4'], ['--batch', '{}'], 2, '--values is for recordings; a command has --try, like --try 4,8'],
    [['--write', 'none/made.weir'], ['--batch', '{}'], 2, '--write none/made.weir: there is no folder none'],
    [['--keep', '/none/kept'], ['--batch', '{}'], 2, '--keep /none/kept: there is no folder /none'],
    [['--keep', '/dev/null'], ['--batch', '{}'], 2, '--keep /dev/null: it is no folder'],
    [['--keep', '/proc/kept'], ['--batch', '{}'], 3, "ENOENT: no such file or directory, mkdir '/proc/kept'"],
    [['--write', '/dev/null'], ['--batch', '{}'], 2, '/dev/null exists; -f overwrites it'],
  ])('refuses %j before anything runs', async (parameters, words, code, sentence) => {
    // Without -q each run would be said.
    expect(await run.weir(['fit', ...parameters, ...job(...words)])).toMatchObject({ code, stderr: `weir: ${sentence}\n`, stdout: '' });
    expect(readdirSync(run.temporary)).toEqual([]);
  });

  it('asks for the values of recordings, even of missing ones', async () => {
    const { code, stderr } = await run.weir(['fit', 'none.weir', 'other.weir']);
    expect([code, stderr]).toEqual([2, 'weir: give the value of each recording, like --values 4,8\n']);
  });

  it('needs -- before a command with options', async () => {
    expect(await run.weir(['fit', 'python', 'train.py', '--batch', '{}'])).toMatchObject({
      code: 2,
      stderr:
        'weir: there is no option --batch; if it belongs to a command, put -- before that: weir fit -- python train.py --batch-size {}\n',
    });
  });

  it('takes a run without steps as it is, if asked to', async () => {
    const { code, stdout } = await run.weir(['fit', '--whole', '--try', '2,4', ...job('--batch', '{}', 'no-steps')]);
    expect([code, stdout.split('\n')[0]]).toEqual([0, 'The largest value that fits in 1.00 GiB, from runs of 2 and 4:']);
  });

  it('names the error of a rank, not the lines of its launcher', async () => {
    const launcher = String.raw`printf '[rank1]: Traceback:\n[rank1]: ValueError: no such dataset\nerrors.ChildFailedError:\n\ntrain.py FAILED\n=====\n'; exit 1`;
    const { stderr } = await run.weir(['fit', '-q', '--', 'sh', '-c', launcher, '{}']);
    expect(stderr).toContain('weir: the run of 2 failed (exit code 1): [rank1]: ValueError: no such dataset; to see all that it prints: ');
  });

  it('takes of several processes the one that needs most, or that of the GPU it is asked for', async () => {
    const own = `${process.execPath} ${JOB}`;
    const ranks = ['--', 'sh', '-c', `${own} idle && ${own} --batch {} gpu 1 && ${own} --batch {}0`];
    const answer = async (...options: string[]) => {
      const { code, stdout, stderr } = await run.weir(['fit', '-q', '--json', '--try', '2,4', '--at', '5', ...options, ...ranks]);
      return [code, stderr, code === 0 ? JSON.parse(stdout).results[2].asked[0].peakLive / MIB : undefined];
    };
    expect(await answer()).toEqual([0, '', 40 + 50 * 15]);
    expect(await answer('--device', '1')).toEqual([0, '', 40 + 5 * 15]);
    expect(await answer('--device', '3')).toEqual([
      125,
      'weir: the run of 2 requested no memory of GPU 3; --device can be 0, 1\n',
      undefined,
    ]);
    expect(await run.weir(['fit', '-q', ...job('idle', '{}')])).toMatchObject({
      code: 125,
      stderr: 'weir: the run of 2 requested no GPU memory; give a command that does\n',
    });
  });

  it('leaves variables of the shell alone', async () => {
    const script = `job="${process.execPath} ${JOB}"; \${job} --batch {}`;
    const { code, stderr } = await run.weir(['fit', '--try', '2,4', '--', 'sh', '-c', script]);
    expect([code, stderr]).toEqual([0, expect.stringContaining(`\${job} --batch 4`)]);
  });

  it('looks for a smaller third value if one runs out of memory, and says what speaks against the answer', async () => {
    const words = job('--batch', '{}', 'fail-above', '8');
    const { code, stdout, stderr } = await run.weir(['fit', ...words]);
    expect([code, stdout]).toEqual([0, expect.stringMatching(/from runs of 2, 4 and 8:\n/)]);
    expect(stderr).toContain('going on with 2 and 4\n');
    const warning =
      'the run of 12 ran out of memory, but by this answer it fits in 1000 MiB: other processes use the GPU, or the program needs more from some value on. Try values just below 12';
    expect(stdout).toContain(`\nwarning: ${warning}\n`);
    expect(JSON.parse((await run.weir(['fit', '--json', ...words])).stdout).warnings).toEqual([warning]);
    // A value that is too large for this GPU says nothing against the answer.
    const larger = await run.weir(['fit', '--try', '2,4,80', ...job('--batch', '{}', 'fail-above', '70')]);
    expect([larger.code, larger.stdout]).toEqual([0, expect.not.stringContaining('warning:')]);
  });

  it('goes on with the smaller values if a later one fails', async () => {
    const { code, stderr } = await run.weir(['fit', '--try', '2,4,8', ...job('--batch', '{}', 'fail-above', '4')]);
    expect(code).toBe(0);
    expect(stderr).toContain(
      'weir: the run of 8 failed (exit code 1): torch.OutOfMemoryError: CUDA out of memory; going on with 2 and 4\n',
    );
  });

  it.each([
    ['SIGINT', 'wait', false],
    ['SIGTERM', 'wait', false],
    // A shell does not tell its programs, and a program may ignore it.
    ['SIGTERM', 'wait', true],
    ['SIGINT', 'stubborn wait', true],
  ] as const)('ends the command with all that it started and cleans up on %s (%s, in a shell: %s)', async (sent, words, isInShell) => {
    const pidFile = join(run.path, `pid-${sent}-${isInShell}`);
    const command = job('--batch', '{}', ...words.split(' '), pidFile);
    const shell = ['--', 'sh', '-c', `${command.slice(1).join(' ')}; true`];
    const child = run.start(['fit', ...(isInShell ? shell : command)]);
    const ended = outcomeOf(child);
    let said = '';
    child.stderr!.on('data', (chunk: Buffer) => {
      said += chunk.toString();
    });
    while (!said.includes('running ') || readdirSync(run.temporary).length < 2 || !hasText(pidFile)) await sleep(20);
    const owner = identityOf(Number(readFileSync(pidFile, 'utf8')))!;
    child.kill(sent);
    const { signal, code } = await ended;
    expect(signal === sent || code === 128 + constants.signals[sent]).toBe(true);
    expect(readdirSync(run.temporary)).toEqual([]);
    expect(isAlive(owner)).toBe(false);
  });
});
