// The real command on real recordings: what people read, what programs read, and what happens when it goes wrong.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, describe, expect, it } from 'vitest';
import { ROOT, weir } from '../support/command.ts';
import { writePickle } from '../support/pickle-writer.ts';
import { readSample } from '../support/samples.ts';

const folder = mkdtempSync(join(tmpdir(), 'weir-analyze-'));
afterAll(() => rmSync(folder, { recursive: true }));

const OOM = 'samples/gpt2xl-oom.pickle.gz';
const VGG = 'samples/vgg16-b100.native.pickle.gz';
const RESNET = 'samples/resnet50-b100.native.pickle.gz';

function file(name: string, content: Uint8Array | string): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

describe('weir analyze', () => {
  it('says what was lost, what each allocator would have needed, and what to do', async () => {
    const { code, stdout, stderr } = await weir(['analyze', OOM]);
    expect(code).toBe(0);
    expect(stderr).toBe('');
    await expect(stdout).toMatchFileSnapshot('analyze-gpt2xl-oom.txt');
  });

  it('is what the README shows', async () => {
    const { stdout } = await weir(['analyze', OOM]);
    const readme = readFileSync(new URL('README.md', ROOT), 'utf8');
    const table = stdout.slice(stdout.indexOf('What each allocator'), stdout.indexOf('What to do'));
    expect(readme).toContain(table.trim());
  });

  it('knows what Weir itself writes: plans and results', async () => {
    const plan = file('x.plan', '{"weir":"plan","version":1,"kind":"step","blocks":[{"size":1}]}');
    const result = file('x.json', JSON.stringify({ schema: 1, file: 'a.pickle', trace: {} }));
    for (const command of ['analyze', 'replay']) {
      const ofPlan = await weir([command, plan]);
      expect(ofPlan.stderr).toBe(
        `weir: ${plan}: the file is a plan, not a recording: name the recording that it was made from, or check the plan with weir verify PLAN FILE\n`,
      );
      expect(ofPlan.code).toBe(3);
      expect((await weir([command, result])).stderr).toContain('is a result that a weir command printed with --json');
    }
  });

  it('says of a damaged packed file only that it cannot be unpacked', async () => {
    const cut = file('cut.gz', gzipSync('not a recording').subarray(0, 20));
    expect((await weir(['analyze', cut])).stderr).toMatch(/cut\.gz: the file cannot be unpacked/);
    const text = file('text.gz', gzipSync('not a recording'));
    expect((await weir(['analyze', text])).stderr).toMatch(/text\.gz: unpacked, the file is text/);
  });

  it('takes --pytorch for every rank', async () => {
    const { stdout } = await weir(['analyze', 'samples/exact/frac.pkl.gz', VGG, '--pytorch', '2.13', '--json']);
    const { ranks } = JSON.parse(stdout) as { ranks: { replayError: { pytorch: { versions: string } } }[] };
    expect(ranks.map(({ replayError }) => replayError.pytorch.versions)).toEqual(['2.13 and later', '2.13 and later']);
  });

  it('speaks JSON with the contracted fields', async () => {
    const { code, stdout } = await weir(['analyze', VGG, '--json']);
    expect(code).toBe(0);
    const answer = JSON.parse(stdout);
    expect(answer).toMatchObject({
      schema: 1,
      file: VGG,
      device: 0,
      trace: { events: 2956, allocs: 1021, recordedPeakReserved: 16882073600, recordedAllocator: 'pytorch' },
      replayError: { differing: 0, recordedPeakReserved: 16882073600, modelledPeakReserved: 16882073600 },
      oom: null,
    });
    expect(answer.whatIf.find((row: { allocator: string }) => row.allocator === 'expandable')).toMatchObject({
      peakReserved: 11603542016,
      isRecorded: false,
    });
    expect(answer.advice[0]).toMatchObject({
      line: 'export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True',
      savedBytes: 16882073600 - 11603542016,
    });
  });

  it('reads standard input and files, plain, gzip and zstd alike', async () => {
    const packed = await weir(['analyze', '-', '--json', '--no-smallest'], { input: readFileSync(new URL(VGG, ROOT)) });
    const plain = await weir(['analyze', '-', '--json', '--no-smallest'], { input: readSample('vgg16-b100.native.pickle.gz') });
    const figures = ({ stdout }: { stdout: string }) => JSON.parse(stdout).whatIf.map((row: { peakReserved: number }) => row.peakReserved);
    expect(packed.code).toBe(0);
    expect(figures(plain)).toEqual(figures(packed));
    const zstd = await weir(['analyze', 'test/cli/s1.pickle.zst', '--json', '--no-smallest']);
    const original = await weir(['analyze', 'samples/exact/s1.pickle', '--json', '--no-smallest']);
    expect(figures(zstd)).toEqual(figures(original));
  });

  it('compares the ranks of a job and shows the worst in full', async () => {
    const { code, stdout } = await weir(['analyze', VGG, RESNET, OOM]);
    expect(code).toBe(0);
    expect(stdout).toContain('3 ranks');
    expect(stdout).toContain(`warning: ${OOM} does not look like a rank of the same job as ${VGG}`);
    expect(stdout).toMatch(/gpt2xl-oom.*1 x.*worst/);
    expect(stdout).toContain('Peak reserved: 10.08 GiB to 20.67 GiB, median 15.72 GiB');
    expect(stdout).toContain('Out of memory at event');
    const json = await weir(['analyze', VGG, RESNET, OOM, '--json']);
    const answer = JSON.parse(json.stdout);
    expect(answer).toMatchObject({ schema: 1, spread: { peakReserved: { median: 16882073600 } }, worst: { file: OOM } });
    expect(answer.ranks.map((rank: { file: string }) => rank.file)).toEqual([VGG, RESNET, OOM]);
  });

  it('reads a recording once, if a link to it is named too', async () => {
    const path = file('train.4711.pickle.gz', readFileSync(new URL(RESNET, ROOT)));
    const link = join(folder, 'latest.weir');
    const broken = join(folder, 'broken.weir');
    symlinkSync('train.4711.pickle.gz', link);
    symlinkSync('nowhere', broken);
    const { code, stdout } = await weir(['analyze', '--no-smallest', link, path]);
    expect([code, stdout.split('\n')[0]]).toEqual([0, path]);
    expect((await weir(['analyze', '--no-smallest', link])).stdout.split('\n')[0]).toBe(link);
    expect((await weir(['analyze', '--no-smallest', broken, path])).code).toBe(3);
  });

  it('goes on with the other ranks when one cannot be read, and says so', async () => {
    const broken = file('broken.pickle', readSample('exact/s1.pickle').subarray(0, 3000));
    const { code, stdout, stderr } = await weir(['analyze', VGG, broken, RESNET]);
    expect(code).toBe(3);
    expect(stderr).toMatch(/^weir: .*broken\.pickle: .*truncated/);
    expect(stderr.trim().split('\n')).toHaveLength(1);
    expect(stdout).toContain('2 ranks');
  });

  it('compares the GPUs of one file, or takes the one that is named', async () => {
    const entry = (action: string, addr: number, size: number) => ({ action, addr, size, stream: 0, time_us: 1 });
    const history = (base: number) => [entry('segment_alloc', base, 2 ** 21), entry('alloc', base, 1000)];
    const segment = (device: number, address: number) => ({
      device,
      address,
      total_size: 2 ** 21,
      stream: 0,
      segment_type: 'small',
      blocks: [
        { address, size: 1024, requested_size: 1000, state: 'active_allocated' },
        { address: address + 1024, size: 2 ** 21 - 1024, requested_size: 0, state: 'inactive' },
      ],
    });
    const two = file(
      'two.pickle',
      writePickle({ segments: [segment(0, 2 ** 30), segment(1, 2 ** 31)], device_traces: [history(2 ** 30), history(2 ** 31)] }),
    );
    const both = await weir(['analyze', two]);
    expect(both.code).toBe(0);
    expect(both.stdout).toContain('2 ranks');
    const one = await weir(['analyze', two, '--gpu', '1', '--json']);
    expect(JSON.parse(one.stdout).device).toBe(1);
    const none = await weir(['analyze', two, '--gpu', '7']);
    expect(none.code).toBe(3);
    expect(none.stderr).toContain('has no events of GPU 7; it has GPU 0, 1');
  });

  it('breaks the build when a rule is broken', async () => {
    const { code, stderr } = await weir(['analyze', VGG, '--fail-if', 'fragmentation>15%', '--fail-if', 'peak>70GiB', '--no-smallest']);
    expect(code).toBe(1);
    expect(stderr).toBe('weir: fragmentation is 45.2 % (rule: fragmentation>15%)\n');
    expect((await weir(['analyze', VGG, '--fail-if', 'peak>70GiB', '--no-smallest'])).code).toBe(0);
  });

  it('lets rules speak of the GPU that is given, and refuses a number without its unit', async () => {
    const small = await weir(['analyze', VGG, '--capacity', '4GiB', '--fail-if', 'ooms>0', '--no-smallest']);
    expect(small.code).toBe(1);
    const [, times] = /pytorch \(as recorded\).*out of memory \((\d+) x\)/.exec(small.stdout)!;
    expect(small.stderr).toBe(`weir: ooms is ${times} (rule: ooms>0)\n`);
    const bare = await weir(['analyze', VGG, '--fail-if', 'fragmentation>15']);
    expect([bare.code, bare.stderr]).toEqual([2, expect.stringContaining('write fragmentation>15%')]);
    const fits = await weir(['analyze', VGG, '--fail-if', 'fits>8GiB', '--no-smallest', '--quiet']);
    expect([fits.code, fits.stderr]).toEqual([1, expect.stringMatching(/^weir: fits is \d+\.\d+ GiB \(rule: fits>8GiB\)\n$/)]);
    const ranks = await weir(['analyze', VGG, VGG, '--fail-if', 'fits>40GiB', '--no-smallest', '--quiet']);
    expect([ranks.code, ranks.stderr]).toEqual([0, '']);
  });

  it('shows history, every column and a timeline only when asked', async () => {
    const plain = (await weir(['analyze', VGG, '--no-smallest'])).stdout;
    expect(plain).not.toMatch(/cnmem|gmlake|█/);
    const all = (await weir(['analyze', VGG, '--no-smallest', '--all', '--timeline'])).stdout;
    expect(all).toMatch(/█ live {3}░ reserved[\s\S]*driver time[\s\S]*cnmem[\s\S]*gmlake/);
    const asked = (await weir(['analyze', VGG, '--no-smallest', '--allocator', 'gmlake'])).stdout;
    expect(asked).toContain('gmlake');
    const json = (await weir(['analyze', VGG, '--no-smallest', '--json', '--timeline'])).stdout;
    expect(JSON.parse(json).whatIf.map((row: { allocator: string }) => row.allocator)).toContain('cnmem');
  });

  it('answers for a snapshot without history, and says what is missing', async () => {
    const segments = [
      {
        device: 0,
        address: 2 ** 30,
        total_size: 20 * 2 ** 20,
        stream: 0,
        segment_type: 'large',
        blocks: [
          { address: 2 ** 30, size: 6 * 2 ** 20, requested_size: 6 * 2 ** 20, state: 'active_allocated' },
          { address: 2 ** 30 + 6 * 2 ** 20, size: 14 * 2 ** 20, requested_size: 0, state: 'inactive' },
        ],
      },
    ];
    const { code, stdout } = await weir(['analyze', file('state.pickle', writePickle({ segments, device_traces: [[]] }))]);
    expect(code).toBe(0);
    expect(stdout).toContain('warning:');
    expect(stdout).toContain('Peak: 20 MiB reserved, 6 MiB in use');
  });
});

describe('what cannot be used', () => {
  mkdirSync(join(folder, 'directory'));
  it.each([
    ['a missing file', () => join(folder, 'nowhere.pickle'), /nowhere\.pickle: there is no such file/],
    ['a folder', () => join(folder, 'directory'), /is a folder; name the snapshot file in it/],
    ['an empty file', () => file('empty.pickle', ''), /empty/],
    ['a text file', () => file('notes.txt', 'hello, this is not a snapshot\n'), /text/],
    ['a checkpoint', () => file('model.pt', new Uint8Array([0x50, 0x4b, 3, 4, 0, 0, 0, 0])), /zip/i],
    ['another pickle', () => file('other.pickle', writePickle({ weights: [1, 2, 3] })), /weights/],
    ['a hostile pickle', () => file('evil.pickle', Buffer.from('\x80\x04cos\nsystem\n(S"touch /tmp/pwned"\ntR.', 'latin1')), /os\.system/],
    ['a truncated snapshot', () => file('cut.pickle', readSample('exact/s1.pickle').subarray(0, 2000)), /truncated/],
    [
      'a truncated gzip',
      () => file('cut.pickle.gz', gzipSync(readSample('exact/s1.pickle')).subarray(0, 1000)),
      /truncated or damaged; copy it again/,
    ],
    [
      'a truncated zstd',
      () => file('cut.zst', new Uint8Array([0x28, 0xb5, 0x2f, 0xfd, 0x24, 0x05])),
      /truncated or damaged; copy it again/,
    ],
  ])('%s gets one sentence and exit code 3', async (_, make, message) => {
    const { code, stdout, stderr } = await weir(['analyze', make()]);
    expect(code).toBe(3);
    expect(stdout).toBe('');
    expect(stderr).toMatch(message);
    expect(stderr).toMatch(/^weir: .*\n$/);
  });

  it.each([
    [['analyze'], /missing required argument/],
    [['analyze', VGG, '--capacity', 'big'], /not a size/],
    [['analyze', VGG, '--capacity', '0'], /more than 0/],
    [['analyze', VGG, '--gpu', 'x'], /not the number of a GPU/],
    [['analyze', VGG, '--allocator', 'tcmalloc'], /no allocator 'tcmalloc'/],
    [['analyze', VGG, '--fail-if', 'speed>3'], /not a rule/],
    [['analyze', VGG, '--jsno'], /unknown option/],
    [['analyse', VGG], /unknown command/],
    [['replay', VGG, '--memory-fraction', '0.5'], /needs the size of the GPU/],
    [['replay', VGG, '--max-split-size', '1.5'], /whole MiB/],
    [['replay', VGG, '--conf', 'nonsense:1'], /not a setting/],
    [['convert', VGG, 'out.txt'], /does not say which format/],
  ])('%j is refused with exit code 2', async (parameters, message) => {
    const { code, stderr } = await weir(parameters);
    expect(code).toBe(2);
    expect(stderr).toMatch(message);
  });
});

describe('weir', () => {
  it('shows help with examples, for itself and for each command', async () => {
    for (const command of [[], ['analyze'], ['replay'], ['convert'], ['doctor'], ['run'], ['record']]) {
      const { code, stdout } = await weir([...command, '--help']);
      expect(code).toBe(0);
      expect(stdout).toMatch(/^Examples:\n {2}weir /);
    }
  });

  it('tells its version', async () => {
    const { version } = JSON.parse(readFileSync(new URL('package.json', ROOT), 'utf8'));
    expect((await weir(['--version'])).stdout).toBe(`${version}\n`);
  });

  it('says what this machine has', async () => {
    const { code, stdout } = await weir(['doctor', '--json']);
    expect(code).toBe(0);
    const { schema, findings } = JSON.parse(stdout);
    expect(schema).toBe(1);
    const names = findings.map((finding: { name: string }) => finding.name);
    // Runs that were killed on this machine, by whomever.
    expect(names.filter((name: string) => name !== 'leftovers')).toEqual([
      'Node.js',
      'machine',
      'CUDA driver',
      'GPU',
      'Python',
      'PyTorch',
      'C++ compiler',
      'CUDA headers',
      'weir run',
    ]);
  });
});
