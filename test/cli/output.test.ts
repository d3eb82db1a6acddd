// What the command prints and writes: a failed write is an error, files are whole or absent, standard input works in
// worker threads, and nothing in a recording reaches the terminal as a control character.
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { MAIN, type Outcome, ROOT, weir } from '../support/command.ts';
import { type PickleDict, writePickle } from '../support/pickle-writer.ts';

const folder = mkdtempSync(join(tmpdir(), 'weir-output-'));
afterAll(() => rmSync(folder, { recursive: true }));

const VGG = 'samples/vgg16-b100.native.pickle.gz';
const CSV = join(folder, 'buffers.csv');
writeFileSync(CSV, 'id,lower,upper,size\na,0,5,64\nb,2,9,32\n');

/** Runs a line in which `weir` is the command. */
async function shell(line: string): Promise<Outcome> {
  const child = spawn('bash', ['-c', `weir() { "${process.execPath}" "${MAIN}" "$@"; }; ${line}`], { cwd: ROOT.pathname });
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (chunk: Buffer) => {
    stdout += chunk.toString();
  });
  child.stderr.on('data', (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  return new Promise((resolve) => child.on('close', (code, signal) => resolve({ code, signal, stdout, stderr })));
}

describe.runIf(existsSync('/dev/full'))('output that cannot be written', () => {
  it.each([
    `analyze ${VGG} --no-smallest`,
    `analyze ${VGG} --no-smallest --json`,
    `analyze ${VGG} ${VGG} --no-smallest`,
    `replay ${VGG}`,
    `plan ${CSV}`,
    `convert ${VGG} ${join(folder, 'full.weir')} -f --json`,
    '--help',
  ])('is an error: weir %s', async (line) => {
    const { code, stderr } = await shell(`weir ${line} > /dev/full`);
    expect(code).toBe(3);
    expect(stderr).toMatch(/^weir: the output is incomplete: .*no space left on device.*\n$/);
  });

  it('is an error if the file may not grow', async () => {
    const { code, stderr } = await shell(
      `ulimit -f 1; weir analyze samples/gpt2xl-oom.pickle.gz --no-smallest --json > "${join(folder, 'short')}"`,
    );
    expect(code).toBe(3);
    expect(stderr).toMatch(/^weir: the output is incomplete: .*\n$/);
  });

  it('is no error if the reader has enough', async () => {
    expect(await shell(`weir analyze ${VGG} --no-smallest | head -1`)).toMatchObject({ stdout: `${VGG}\n`, stderr: '' });
  });
});

describe('a file that cannot be written', () => {
  it('is named, and nothing is left behind', async () => {
    const target = join(folder, 'folder.weir');
    mkdirSync(target);
    for (const force of [[], ['-f']]) {
      const { code, stderr } = await weir(['convert', VGG, target, ...force]);
      expect(code).toBe(2);
      expect(stderr).toBe(`weir: ${target} is a folder; name a file in it\n`);
    }
    const missing = join(folder, 'none', 'x.weir');
    for (const parameters of [
      ['convert', VGG, missing],
      ['plan', CSV, '-o', missing],
      ['report', VGG, '-o', missing],
    ]) {
      const { code, stderr } = await weir(parameters);
      expect(code).toBe(3);
      expect(stderr).toBe(`weir: ${missing} cannot be written: there is no folder ${join(folder, 'none')}\n`);
    }
    expect(readdirSync(folder).filter((name) => name.includes('.part'))).toEqual([]);
  });

  it.runIf(process.platform === 'linux')('leaves the old plan as it was', async () => {
    const target = join(folder, 'old.plan');
    writeFileSync(target, 'old');
    writeFileSync(
      join(folder, 'many.csv'),
      `id,lower,upper,size\n${Array.from({ length: 500 }, (_, index) => `b${index},${index},${index + 1},64`).join('\n')}\n`,
    );
    const { code } = await shell(`ulimit -f 1; weir plan "${join(folder, 'many.csv')}" -o "${target}" -f`);
    expect(code).toBe(3);
    expect(readFileSync(target, 'utf8')).toBe('old');
    expect(readdirSync(folder).filter((name) => name.includes('.part'))).toEqual([]);
  });
});

describe('control characters in a recording', () => {
  const BAD = '\x1b]0;owned\x07\x1b[2J\r\n\x9b31m\u202e\u2066x\x7f';
  const frames = [{ name: `f${BAD}`, filename: `a${BAD}.py`, line: 3 }];
  const BASE = 0x7f0000000000;
  const event = (action: string, addr: number, size: number, time: number): PickleDict => ({
    action,
    addr,
    size,
    stream: 0,
    time_us: time,
    frames,
  });
  const file = (name: string, value: PickleDict) => {
    const path = join(folder, name);
    writeFileSync(path, writePickle(value));
    return path;
  };
  const segments = [
    {
      device: 0,
      address: BASE,
      total_size: 2 ** 21,
      stream: 0,
      segment_type: 'small',
      blocks: [{ address: BASE, size: 512, requested_size: 512, state: 'active_allocated', frames }],
    },
  ];
  const whole = file('escapes.pickle', {
    segments,
    device_traces: [
      [event('segment_alloc', BASE, 2 ** 21, 1), event('alloc', BASE, 512, 2), event(`new${BAD}`, 1, 1, 3), event(`${BAD}${BAD}`, 1, 1, 4)],
    ],
    allocator_settings: { [`key${BAD}`]: BAD, PYTORCH_CUDA_ALLOC_CONF: BAD },
    external_annotations: [{ name: BAD, stage: 'START', device: 0, time_us: 1 }],
  });
  const keys = file('keys.pickle', { [`key${BAD}`]: 1, [BAD]: 2 });
  const actions = file('actions.pickle', { segments: [], device_traces: [[event(BAD, 1, 1, 1)]] });
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
  const CONTROL = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]/;

  it.each([
    ['analyze', whole, '--no-smallest'],
    ['analyze', whole, '--no-smallest', '--json'],
    ['analyze', whole, whole, '--no-smallest'],
    ['replay', whole],
    ['replay', whole, '--json'],
    ['plan', whole],
    ['convert', whole, join(folder, 'escapes.weir'), '-f'],
    ['analyze', keys],
    ['analyze', keys, actions],
    ['analyze', actions],
    ['plan', keys],
    ['analyze', join(folder, `no${BAD.replaceAll('/', '')}such`)],
    ['analyze', whole, '--allocator', BAD],
    ['verify', keys, whole],
  ])('are not printed by weir %s', async (...parameters) => {
    const { stdout, stderr } = await weir(parameters);
    expect(stdout + stderr).not.toMatch(CONTROL);
    expect(stdout + stderr).not.toBe('');
  });

  it('do not make lines of their own', async () => {
    const { stdout } = await weir(['analyze', whole, '--no-smallest']);
    expect(stdout).toContain('f\\u001b]0;owned\\u0007\\u001b[2J\\u000d\\u000a\\u009b31m\\u202e\\u2066x\\u007f');
  });
});
