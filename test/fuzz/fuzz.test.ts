// The corpus and a few thousand damaged inputs are read without a defect, and the fuzzer finds planted defects.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { ROOT } from './corpus.ts';
import { removeRing } from './ring-reader.ts';
import { TARGETS } from './targets.ts';

const PROGRAM = fileURLToPath(new URL('build/test/fuzz/main.js', ROOT));
const CORPUS = fileURLToPath(new URL('test/fuzz/corpus', ROOT));
const SEED = 16;
const INPUTS = 150;
const KEPT = mkdtempSync(join(tmpdir(), 'weir-fuzz-test-'));
afterAll(() => {
  rmSync(KEPT, { recursive: true, force: true });
  removeRing();
});

describe('the corpus', () => {
  const files = readdirSync(CORPUS).flatMap((folder) => readdirSync(join(CORPUS, folder)).map((name) => join(CORPUS, folder, name)));

  it('is small', () => {
    const sizes = files.map((file) => readFileSync(file).length);
    expect(Math.max(...sizes)).toBeLessThanOrEqual(4096);
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBeLessThan(200_000);
  });

  it('has inputs for every target', () => {
    expect(files.length).toBeGreaterThan(40);
    for (const target of TARGETS) expect(target.input(SEED, 0).length, target.name).toBeGreaterThan(0);
  });
});

describe.each(TARGETS)('$name', (target) => {
  it('reads or refuses every input', async () => {
    let read = 0;
    for (let number = 0; number < INPUTS; number++) {
      try {
        await target.read(target.input(SEED, number));
        read++;
      } catch (error) {
        if (!target.isRefusal(error)) throw new Error(`input ${target.name}:${SEED}:${number}`, { cause: error });
      }
    }
    // The sound inputs of the corpus at least.
    expect(read).toBeGreaterThan(0);
  });

  it('makes the same input from the same number', () => {
    const input = target.input(SEED, 1000);
    expect(Buffer.compare(target.input(SEED, 1000), input)).toBe(0);
    expect([1001, 1002, 1003].some((number) => Buffer.compare(target.input(SEED, number), input) !== 0)).toBe(true);
  });
});

describe('the fuzzer', () => {
  const run = (...options: string[]) =>
    spawnSync(process.execPath, [PROGRAM, '--keep', KEPT, '--workers', '1', ...options], { encoding: 'utf8' });

  it('finds planted defects, and reads the other inputs in spite of them', () => {
    const defects = {
      throw: /TypeError: Cannot read properties of undefined/,
      loop: /it did not come to an end in 2500 ms/,
      grow: /memory (of the process )?went up to \d+ MiB/,
      heap: /memory of the process went up to|the process died/,
      die: /the process died \(SIGKILL\)/,
    };
    const names = Object.keys(defects).map((name) => `planted-${name}`);
    // Input 60 of each target shows its defect.
    const { status, stdout, stderr } = run('--targets', names.join(), '--executions', '400', '--slow', '2500', '--memory', '160');
    expect(status).toBe(1);
    const found = stderr.split('DEFECT of ').slice(1);
    expect(found).toHaveLength(names.length);
    Object.values(defects).forEach((message, index) => {
      expect(found[index]).toContain(`${names[index]}, input ${names[index]}:1:60, kept as`);
      expect(found[index]).toMatch(message);
      expect(readFileSync(join(KEPT, `${names[index]}-seed1-60.bin`))[0]).toBe(7);
    });
    expect(stdout.match(/^planted-\w+ +80 .* 1$/gm)).toHaveLength(names.length);
  });

  it('counts what was read and refused, and makes one input again', () => {
    const output = join(KEPT, 'results.json');
    const { status, stdout } = run('--targets', 'csv,plan', '--executions', '301', '--output', output);
    expect(status).toBe(0);
    expect(stdout).toMatch(/^total +301 /m);
    const { executions, targets } = JSON.parse(readFileSync(output, 'utf8')) as {
      executions: number;
      targets: { read: number; refused: number; executions: number }[];
    };
    expect(executions).toBe(301);
    for (const target of targets) expect(target.read + target.refused).toBe(target.executions);
    expect(run('--input', 'csv:1:0').stdout).toBe('read\n');
    expect(run('--input', 'planted-throw:1:60').stderr).toContain('TypeError');
  });

  it('tells a target that does not exist', () => {
    const { status, stderr } = run('--targets', 'nothing');
    expect(status).toBe(1);
    expect(stderr).toMatch(/there is no target 'nothing'; there are pickle, json/);
  });
});
