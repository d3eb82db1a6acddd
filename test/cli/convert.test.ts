// `weir convert` and `weir replay` as a user runs them; an interrupted conversion leaves nothing behind.
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { MAIN, ROOT, weir } from '../support/command.ts';

const folder = mkdtempSync(join(tmpdir(), 'weir-convert-'));
afterAll(() => rmSync(folder, { recursive: true }));

const VGG = 'samples/vgg16-b100.native.pickle.gz';

describe('weir convert', () => {
  it.each(['a.weir', 'a.weir.gz', 'a.json', 'a.json.gz'])('to %s and back loses nothing that a replay sees', async (name) => {
    const out = join(folder, name);
    const converted = await weir(['convert', VGG, out]);
    expect(converted).toMatchObject({ code: 0, stdout: '' });
    expect(converted.stderr).toContain('2,956 events');
    const figures = async (file: string) => {
      const { trace, results } = JSON.parse((await weir(['replay', file, '--json'])).stdout);
      return { trace, peaks: results.map((row: { peakReserved: number }) => row.peakReserved) };
    };
    expect(await figures(out)).toEqual(await figures(VGG));
  });

  it('does not overwrite a file unless told to', async () => {
    const out = join(folder, 'mine.weir');
    writeFileSync(out, 'precious');
    const refused = await weir(['convert', VGG, out]);
    expect(refused.code).toBe(2);
    expect(refused.stderr).toContain('exists; -f overwrites it');
    expect(readFileSync(out, 'utf8')).toBe('precious');
    expect((await weir(['convert', VGG, out, '-f'])).code).toBe(0);
  });

  it('leaves nothing behind when the input is unusable or the folder is not there', async () => {
    const before = readdirSync(folder);
    expect((await weir(['convert', join(folder, 'nowhere.pickle'), join(folder, 'new.weir')])).code).toBe(3);
    const { code, stderr } = await weir(['convert', VGG, join(folder, 'no', 'such', 'folder.weir')]);
    expect(code).toBe(3);
    expect(stderr).toMatch(/^weir: .*\n$/);
    expect(readdirSync(folder)).toEqual(before);
  });

  it('opens a file whose writer was killed, up to its last whole record', async () => {
    const whole = join(folder, 'whole.weir');
    await weir(['convert', VGG, whole]);
    const cut = join(folder, 'cut.weir');
    writeFileSync(cut, readFileSync(whole).subarray(0, -100));
    const { code, stdout } = await weir(['analyze', cut, '--no-smallest']);
    expect(code).toBe(0);
    expect(stdout).toContain('warning:');
  });
});

describe('weir replay', () => {
  it('takes settings as flags, as a string and in brackets alike', async () => {
    const peak = async (...parameters: string[]) => JSON.parse((await weir(['replay', VGG, '--json', ...parameters])).stdout).results[0];
    const byFlag = await peak('--allocator', 'pytorch', '--max-split-size', '128MiB', '--roundup-power2-divisions', '4');
    const byString = await peak('--allocator', 'pytorch', '--conf', 'max_split_size_mb:128,roundup_power2_divisions:4');
    const inBrackets = await peak('--allocator', 'pytorch[max_split_size_mb:128,roundup_power2_divisions:4]');
    expect(byFlag.allocator).toBe('pytorch[max_split_size_mb:128,roundup_power2_divisions:4]');
    const comparable = ({ wallMs: _, ...rest }: Record<string, unknown>) => rest;
    expect(comparable(byString)).toEqual(comparable(byFlag));
    expect(comparable(inBrackets)).toEqual(comparable(byFlag));
  });

  it('fails requests that a smaller GPU could not serve', async () => {
    const { stdout } = await weir(['replay', VGG, '--json', '--allocator', 'pytorch,expandable,cnmem', '--capacity', '9GiB']);
    const [native, expandable, cnmem] = JSON.parse(stdout).results;
    expect(native.ooms).toBeGreaterThan(0);
    expect(native.peakReserved).toBeLessThanOrEqual(9 * 2 ** 30);
    expect(expandable).toMatchObject({ ooms: 0 });
    expect(expandable.retries).toBeGreaterThan(0);
    expect(cnmem.ooms).toBeGreaterThan(0);
  });

  it('checks every invariant at every event when it is told to', async () => {
    const { code } = await weir(['replay', VGG, '--paranoid', '--allocator', 'pytorch,expandable,cnmem', '--capacity', '9GiB']);
    expect(code).toBe(0);
  });

  it('ends quietly when its output is cut off', async () => {
    const child = spawn('bash', ['-c', `"${process.execPath}" "${MAIN}" analyze ${VGG} --no-smallest | head -1`], { cwd: ROOT.pathname });
    let stderr = '';
    child.stderr.on('data', (chunk: Buffer) => {
      stderr += chunk.toString();
    });
    await new Promise((resolve) => child.on('close', resolve));
    expect(stderr).toBe('');
  });
});

describe('an interrupted conversion', () => {
  it('removes its half-written file', async () => {
    const out = join(folder, 'interrupted.json');
    const child = spawn(process.execPath, [MAIN, 'convert', 'samples/gpt2xl-oom.pickle.gz', out], { cwd: ROOT.pathname });
    const part = () => readdirSync(folder).some((name) => name.endsWith('.part'));
    while (!part() && child.exitCode === null) await new Promise((resolve) => setTimeout(resolve, 1));
    child.kill('SIGINT');
    await new Promise((resolve) => child.on('close', resolve));
    expect(part()).toBe(false);
    // Either the signal came in time and nothing is there, or the file was finished before it came.
    if (existsSync(out)) expect(() => JSON.parse(readFileSync(out, 'utf8'))).not.toThrow();
  });
});
