// `-`, pipes and process substitution stand for files everywhere, also in commands that read in worker threads.
import { spawn } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { MAIN, type Outcome, outcomeOf, ROOT, weir } from '../support/command.ts';

const SAMPLE = 'samples/vgg16-b100.native.pickle.gz';
const OTHER = 'samples/vgg16-b100.expandable.pickle.gz';
const input = readFileSync(new URL(SAMPLE, ROOT));
const folder = mkdtempSync(join(tmpdir(), 'weir-stdin-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** A line of bash that may name the command as `weir`. */
function bash(line: string): Promise<Outcome> {
  const child = spawn('bash', ['-c', `weir() { "${process.execPath}" "${MAIN}" "$@"; }; ${line}`], {
    cwd: ROOT.pathname,
    env: { ...process.env, NO_COLOR: '1' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  return outcomeOf(child);
}

const ANALYZE = ['analyze', '--json', '--allocator', 'expandable', '--no-smallest'];

/** The answer without what differs between two runs: times, and the names of files. */
function figuresOf(json: string): unknown {
  return JSON.parse(json, (key, value) => (['wallMs', 'file', 'effect'].includes(key) ? undefined : value));
}

describe('standard input', () => {
  it('is converted', async () => {
    const fromFile = join(folder, 'file.weir');
    const fromPipe = join(folder, 'pipe.weir');
    expect((await weir(['convert', SAMPLE, fromFile])).code).toBe(0);
    expect((await weir(['convert', '-', fromPipe], { input })).stderr).toContain('wrote');
    expect(readFileSync(fromPipe).equals(readFileSync(fromFile))).toBe(true);
  });

  it('is analysed as a file is, also from a redirected file', async () => {
    const expected = figuresOf((await weir([...ANALYZE, SAMPLE])).stdout);
    expect(figuresOf((await weir([...ANALYZE, '-'], { input })).stdout)).toEqual(expected);
    expect(figuresOf((await bash(`weir ${ANALYZE.join(' ')} - < ${SAMPLE}`)).stdout)).toEqual(expected);
    expect(figuresOf((await bash(`cat ${SAMPLE} | weir ${ANALYZE.join(' ')} /dev/stdin`)).stdout)).toEqual(expected);
  });

  it.each([
    ['first', ['-', OTHER]],
    ['last', [OTHER, '-']],
  ])('is one of several ranks, as the %s', async (_, files) => {
    const inFiles = await weir([...ANALYZE, ...files.map((file) => (file === '-' ? SAMPLE : file))]);
    const { code, stdout, stderr } = await weir([...ANALYZE, ...files], { input });
    expect(stderr).toBe('');
    expect(code).toBe(0);
    // The worst rank is read again for its full analysis, or kept if it cannot be.
    expect(figuresOf(stdout)).toEqual(figuresOf(inFiles.stdout));
    expect(JSON.parse(stdout).worst.file).toBe('-');
  });

  it('is refused a second time', async () => {
    for (const second of ['-', '/dev/stdin']) {
      const { code, stderr } = await weir(['analyze', '-', second], { input });
      expect(stderr).toContain('standard input can be read only once; name a file instead');
      expect(code).toBe(2);
    }
    expect((await weir(['verify', '-', '-'], { input })).stderr).toContain('standard input can be read only once');
  });

  it('that is empty or a folder is told so', async () => {
    expect((await weir(['analyze', '-'], { input: new Uint8Array() })).stderr).toMatch(/^weir: standard input: the file is empty/);
    expect((await bash('weir analyze - < samples')).stderr).toMatch(/standard input is a folder/);
    expect((await weir(['convert', '-', join(folder, 'no.weir')], { input: new Uint8Array() })).code).toBe(3);
  });
});

describe('pipes', () => {
  it('may be process substitutions, several of them', async () => {
    const inFiles = await weir([...ANALYZE, SAMPLE, OTHER]);
    const { code, stdout, stderr } = await bash(`weir ${ANALYZE.join(' ')} <(zcat ${SAMPLE}) <(cat ${OTHER})`);
    expect(stderr).toBe('');
    expect(code).toBe(0);
    expect(figuresOf(stdout)).toEqual(figuresOf(inFiles.stdout));
  });

  it('may be slow and non-blocking', async () => {
    // The parent's end of a pipe of Node's is non-blocking, and so is the child's if they share it.
    const script = `
      import { spawn } from 'node:child_process';
      const slow = spawn('bash', ['-c', 'head -c 100 ${SAMPLE}; sleep 0.3; tail -c +101 ${SAMPLE}'], { stdio: ['ignore', 'pipe', 'inherit'] });
      const child = spawn(process.execPath, [${JSON.stringify(MAIN)}, 'convert', '-', ${JSON.stringify(join(folder, 'slow.weir'))}], { stdio: [slow.stdout, 'inherit', 'inherit'] });
      child.on('close', (code) => process.exit(code));`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', script], { cwd: ROOT.pathname, stdio: 'ignore' });
    expect(await new Promise((resolve) => child.on('close', resolve))).toBe(0);
  });
});

it('a terminal is not waited for', async () => {
  let terminal: number;
  try {
    terminal = openSync('/dev/ptmx', 'r+');
  } catch {
    return;
  }
  const child = spawn(process.execPath, [MAIN, 'analyze', '-'], { stdio: [terminal, 'ignore', 'pipe'] });
  let stderr = '';
  child.stderr!.on('data', (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  const code = await new Promise((resolve) => child.on('close', resolve));
  closeSync(terminal);
  expect(stderr).toContain('standard input is a terminal; name a file, or pipe one in');
  expect(code).toBe(3);
});
