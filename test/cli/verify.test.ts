// `weir verify` with the wrong files: swapped arguments, files of other kinds, plans with invalid fields.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { weir } from '../support/command.ts';

const folder = mkdtempSync(join(tmpdir(), 'weir-verify-'));
afterAll(() => rmSync(folder, { recursive: true }));

const VGG = 'samples/vgg16-b100.native.pickle.gz';
const ORDER = 'the plan comes first: weir verify PLAN FILE';

function file(name: string, content: string | Uint8Array): string {
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

const BUFFERS = file('buffers.csv', 'id,lower,upper,size\na,0,4,4\ne,0,2,8\n');
const PLAN = {
  weir: 'plan',
  version: 1,
  kind: 'offsets',
  footprint: 12,
  buffers: [
    { id: 'a', size: 4, alignment: 1, spans: [[0, 4]], offset: 8 },
    { id: 'e', size: 8, alignment: 1, spans: [[0, 2]], offset: 0 },
  ],
};
const GOOD = file('good.plan', JSON.stringify(PLAN));

async function refusal(plan: string, input: string): Promise<string> {
  const { code, stdout, stderr } = await weir(['verify', plan, input]);
  expect([code, stdout]).toEqual([3, '']);
  expect(stderr.split('\n')).toHaveLength(2);
  return stderr.slice('weir: '.length, -1);
}

describe('weir verify with its arguments swapped', () => {
  const step = join(folder, 'step.plan');
  beforeAll(async () => {
    expect((await weir(['plan', VGG, '-o', step])).code).toBe(0);
  });

  it.each([
    ['a snapshot', VGG, 'is a PyTorch snapshot (pickle)'],
    ['a list of buffers', BUFFERS, 'is a list of buffers'],
    [
      'a snapshot as JSON',
      file('snapshot.json', '{"segments":[],"device_traces":[[]]}'),
      'is JSON but not a plan of Weir (it lacks "weir": "plan")',
    ],
    ['accesses', file('accesses.json', '{"steps":[],"ops":[],"trace":[]}'), 'is a recording of accesses'],
    ['a text trace', file('trace.txt', 'Malloc 0x10 512 1\nFree 0x10 2\n'), 'is a text trace of allocations'],
  ])('%s', async (_, path, look) => {
    expect((await refusal(path, step)).replace(': unpacked,', ':')).toBe(
      `${path}: the file ${look}, not a plan; ${ORDER}`.replace('"), not a plan;', '");'),
    );
  });

  it('a plan as the second file', async () => {
    expect(await refusal(step, step)).toBe(`${step}: the file is a plan, not what the plan is for; ${ORDER}`);
  });

  it.each(['plan', 'plan --swap'])('weir %s of a plan', async (words) => {
    const { code, stderr } = await weir([...words.split(' '), step]);
    expect([code, stderr]).toEqual([3, `weir: ${step}: the file is a plan already; weir verify PLAN FILE checks it\n`]);
  });
});

describe('weir verify with a file that is no plan', () => {
  it.each([
    ['README.md', 'is text that begins with "# Weir"'],
    ['docs/images/compare-light.png', 'is a PNG image'],
    [process.execPath, 'is an ELF program or library'],
    ['/dev/null', 'is empty'],
    [file('noise', Uint8Array.of(0xc1, 0x1b, 0x5b, 0x33, 0x31, 0x6d)), 'is of no known kind (it begins with the bytes c1 1b 5b 33 31 6d)'],
  ])('%s', async (path, look) => {
    expect(await refusal(path, BUFFERS)).toBe(`${path}: the file ${look}, not a plan; ${ORDER}`);
  });
});

describe('weir verify with a damaged plan', () => {
  const expected = 'offset of buffer 1 ("e") must be a whole number, 0 or more, not';

  it.each(['null', '"x"', '1.5', '-1', '{}', 'true', 'NaN', '-Infinity'])('an offset of %s', async (offset) => {
    const path = file('bad.plan', JSON.stringify(PLAN).replace('"offset":0', `"offset":${offset}`));
    const shown = /N|I/.test(offset) ? `"${offset}"` : offset === '{}' ? 'an object' : offset;
    expect(await refusal(path, BUFFERS)).toBe(`${path}: ${expected} ${shown}`);
  });

  it('an offset that is missing', async () => {
    const path = file('bad.plan', JSON.stringify(PLAN).replace(',"offset":0', ''));
    expect(await refusal(path, BUFFERS)).toBe(`${path}: ${expected} missing`);
  });

  it('NaN in a field that nobody reads', async () => {
    const path = file('bad.plan', JSON.stringify(PLAN).replace('"kind"', '"other":NaN,"kind"'));
    expect(await refusal(path, BUFFERS)).toBe(`${path}: the plan holds NaN or Infinity, which JSON does not have`);
  });

  it.each([
    ['cut off', (text: string) => text.slice(0, -9), ': it ends early'],
    ['with a stray comma', (text: string) => text.replace('"kind"', ',"kind"'), ''],
    ['with an escape sequence', (text: string) => text.replace('"kind"', '\u001b[31m"kind"'), ''],
  ])('%s', async (_, damage, why) => {
    const path = file('bad.plan', damage(JSON.stringify(PLAN)));
    expect(await refusal(path, BUFFERS)).toBe(`${path}: the plan is not valid JSON${why}; make it again with weir plan -o FILE`);
  });

  it('the plan itself is correct', async () => {
    expect(await weir(['verify', GOOD, BUFFERS])).toMatchObject({ code: 0, stderr: '' });
  });
});
