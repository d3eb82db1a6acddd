// The script that measures what call stacks cost on a GPU: its statistics, and that it runs. Its figures are not tested here.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';

const PYTHON = process.env['WEIR_TEST_PYTHON'] ?? 'python3';
const folder = fileURLToPath(new URL('../gpu/torch', import.meta.url));
const has = spawnSync(PYTHON, ['-c', 'import torch'], { cwd: tmpdir(), encoding: 'utf8' });
const reason = has.status === 0 ? '' : ` (skipped: ${PYTHON} has no torch; WEIR_TEST_PYTHON names one that has)`;

function python(code: string): unknown {
  const run = spawnSync('python3', ['-c', `import json, random\nfrom paired import *\n${code}`], { cwd: folder, encoding: 'utf8' });
  expect(run.status, run.stderr).toBe(0);
  return JSON.parse(run.stdout);
}

test('each turn is compared with the turns beside it', () => {
  const told = python(`
order = schedule("base", ["a", "b", "c"], random.Random(7))
# A machine that becomes slower all the time: 1, 2, 3 ... per turn. Ways cost twice as much.
print(json.dumps([order, pairs(order, "base", [(at + 1) * (1 if way == "base" else 2) for at, way in enumerate(order)])]))`);
  const [order, found] = told as [string[], Record<string, [number, number]>];
  expect(order.filter((_, at) => at % 2 === 0)).toEqual(Array(4).fill('base'));
  expect(order.filter((way) => way !== 'base').sort()).toEqual(['a', 'b', 'c']);
  for (const [own, base] of Object.values(found)) expect(own / base).toBe(2);
});

test('a verdict needs an interval on one side of the bound, with the noise', () => {
  const told = python(`
from stack_report import judge
draw = random.Random(3)
def one(middle, spread, count=40):
    ratios = [middle + spread * draw.uniform(-1, 1) for _ in range(count)]
    return {"ratio": Estimate(ratios).figures(), "cpu": {"share": Estimate([ratio - 1 for ratio in ratios]).figures()}}
def verdicts(again):
    found = {"narrow": one(1.01, 0.005), "wide": one(1.03, 0.3), "above": one(1.2, 0.1), "few": one(1.01, 0.001, 3), "again": again}
    judge(found, "again")
    return [found[way]["atMost3Percent"] for way in ("narrow", "wide", "above", "few")]
print(json.dumps([verdicts(one(1, 0.002)), verdicts(one(1.05, 0.002))]))`);
  const both = (verdict: string) => ({ time: verdict, cpu: verdict });
  expect(told).toEqual([
    ['yes', 'not settled', 'no', 'not settled'].map(both),
    ['not settled', 'not settled', 'no', 'not settled'].map(both),
  ]);
});

describe.skipIf(reason !== '')(`without a GPU${reason}`, () => {
  test('every way takes part, and all is written down', () => {
    const out = mkdtempSync(join(tmpdir(), 'weir-costs-'));
    const json = join(out, 'costs.json');
    const options = ['--dry', '--only', 'mlp,decode', '--seconds', '12', '--json', json];
    const run = spawnSync(PYTHON, [join(folder, 'stack_costs.py'), ...options], { encoding: 'utf8', timeout: 230_000 });
    expect(run.status, run.stderr).toBe(0);
    const { results } = JSON.parse(readFileSync(json, 'utf8')) as { results: Record<string, { ways: Record<string, { ratio: unknown }> }> };
    expect(Object.keys(results)).toEqual(['mlp', 'decode']);
    for (const { ways } of Object.values(results)) {
      expect(Object.keys(ways).sort()).toEqual(['again', 'history', 'record large', 'record off', 'record python', 'run large']);
      for (const way of Object.values(ways)) expect(way.ratio).toMatchObject({ low: expect.any(Number), high: expect.any(Number) });
      expect(ways['record python']).toHaveProperty('stacksAlone');
    }
    rmSync(out, { recursive: true });
  });
});
