// `weir run --plan` as a user runs it, over a job on the host driver that checks every byte it was given.
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EventKind } from '../../src/trace/trace.ts';
import { readWeir } from '../../src/trace/weir/reader.ts';
import { buildPlanJob, whyNoNative } from '../native/build.ts';
import { MAIN, ROOT } from '../support/command.ts';

const root = mkdtempSync(join(tmpdir(), 'weir-run-plan-'));
const temporary = join(root, 'tmp');
mkdirSync(temporary);
afterAll(() => rmSync(root, { recursive: true, force: true }));

interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function start(parameters: readonly string[], env: Record<string, string> = {}): { child: ChildProcess; ended: Promise<Ended> } {
  const child = spawn(process.execPath, [MAIN, ...parameters], {
    cwd: root,
    env: { ...process.env, NO_COLOR: '1', XDG_RUNTIME_DIR: temporary, TMPDIR: temporary, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  child.stdout!.on('data', (chunk: Buffer) => {
    stdout += chunk.toString();
  });
  child.stderr!.on('data', (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  return { child, ended: new Promise((resolve) => child.on('close', (code) => resolve({ code, stdout, stderr }))) };
}

const reason = whyNoNative();
describe.skipIf(reason !== undefined)(`weir run --plan${reason ? ` (skipped: ${reason})` : ''}`, () => {
  let program = '';
  beforeAll(() => {
    program = new URL(buildPlanJob('none'), ROOT).pathname;
  });
  const job = (...words: string[]) => ['--', program, 'pause=3000', ...words];
  const result = ({ stdout }: Ended) => JSON.parse(stdout) as Record<string, number>;

  it('watches a few steps, plans, and says what came of it', async () => {
    const ended = await start(['run', '--plan', '--record', 'run.weir', '--json-file', 'run.json', ...job('steps=500')]).ended;
    expect([ended.code, ended.stderr]).toEqual([0, expect.any(String)]);
    expect(ended.stderr).toMatch(/^weir: recording to run\.\*\.weir, on weir, watching its steps to plan them /);
    expect(ended.stderr).toMatch(/process \d+: watched \d steps of 122 allocations and frees; planned: 142 MiB -> 132\.1 MiB\n/);
    expect(ended.stderr).toMatch(/process \d+: plan in use: it serves (?:[89]\d\.\d|100\.0) % of the requests\n/);
    expect(ended.stderr).toMatch(/ {2}planned 142 MiB -> 132\.1 MiB, measured 13\d MiB\n/);
    expect(ended.stderr).toMatch(/ {2}since then the plan served 9\d\.\d % of [\d,]+ requests; in the last \d+ steps no driver call\n/);
    const { hits, lastCalls, lastHits, lastRequests, corrupted, plans } = result(ended);
    expect([lastCalls, corrupted, plans]).toEqual([0, 0, 1]);
    expect(lastHits).toBe(lastRequests);
    const json = JSON.parse(readFileSync(join(root, 'run.json'), 'utf8'));
    const { planned } = json.processes[0].gpus[0];
    expect(planned).toMatchObject({ hits, refused: 0, state: 'following', reason: null, left: 0, measured: { driverCalls: 0, share: 1 } });
    expect(planned.plans).toMatchObject([{ period: 122, requests: 61, turns: 1 }]);
    expect(planned.measured.reserved).toBeLessThan(1.03 * planned.plans[0].expected);
    // The recording tells of it, and is a recording like any other.
    const name = readdirSync(root).find((file) => file.startsWith('run.') && file.endsWith('.weir'))!;
    const [trace] = readWeir(readFileSync(join(root, name))).traces;
    const marks = [...trace!.events.kind.subarray(0, trace!.events.count).keys()].filter(
      (event) => trace!.events.kind[event] === EventKind.Mark,
    );
    expect(marks.map((event) => trace!.symbols.strings[trace!.events.detail![event]!])).toEqual([
      'weir plan 1 installed',
      'weir plan 1 in use',
    ]);
    expect(readdirSync(temporary)).toEqual([]);
  });

  it('makes a second plan when shapes change, and goes back to the first with them', async () => {
    const ended = await start(['run', '--plan', '--no-what-if', ...job('steps=1200', 'change=350', 'back=800')]).ended;
    expect(ended.code).toBe(0);
    expect(ended.stderr).toContain('the job no longer follows the plan; watching it again');
    expect(ended.stderr).toContain('2 plans, since the steps changed');
    expect(result(ended)).toMatchObject({ plans: 2, corrupted: 0, lastCalls: 0, lastHits: 305 });
  });

  it.each([
    ['vary=1', /no plan: .*repeats|no plan: its steps differ/],
    ['streams=2', /no plan so far: several streams share the work of a step/],
  ])('says why there is no plan: %s', async (word, why) => {
    const ended = await start(['run', '--no-what-if', ...job('steps=150', word)], { WEIR_PLAN: '1' }).ended;
    expect([ended.code, result(ended)['plans']]).toEqual([0, 0]);
    expect(ended.stderr).toMatch(why);
  });

  it('leaves a job alone that has hardly begun, or that nobody wants planned', async () => {
    const short = await start(['run', '--plan', '--no-what-if', ...job('steps=1')]).ended;
    expect([short.code, short.stderr]).toEqual([0, expect.stringMatching(/no plan: /)]);
    const unplanned = await start(['run', '--no-what-if', ...job('steps=60')]).ended;
    expect(result(unplanned)['plans']).toBe(0);
    expect(unplanned.stderr).not.toContain('plan');
  });

  it('plans the places of a job that swaps once that has settled, and only if asked for', async () => {
    const swapping = (...words: string[]) => ['run', '--swap', 'auto', '--no-what-if', ...words];
    const unasked = await start(swapping(...job('steps=300', 'settles=20'))).ended;
    expect([unasked.code, result(unasked)['plans']]).toEqual([0, 0]);
    expect(unasked.stderr).not.toContain('no plan');
    const unsettled = await start(swapping('--plan', ...job('steps=300'))).ended;
    expect([unsettled.code, result(unsettled)['plans']]).toEqual([0, 0]);
    // Shapes change before it has settled: what was done until then is not planned.
    const ended = await start(swapping('--plan', ...job('steps=1200', 'change=200', 'settles=300'))).ended;
    expect(ended.code).toBe(0);
    expect(result(ended)).toMatchObject({ plans: 1, corrupted: 0, lastCalls: 0 });
    expect(ended.stderr).toMatch(/process \d+: watched \d+ steps of 122 allocations and frees/);
    expect(ended.stderr).not.toContain('no longer follows the plan');
  });

  it('survives that weir is killed', async () => {
    const { child, ended } = start(['run', '--plan', '--no-what-if', ...job('steps=500')]);
    await new Promise<void>((resolve) => {
      let said = '';
      child.stderr!.on('data', (chunk: Buffer) => {
        said += chunk.toString();
        if (said.includes('planned: ')) resolve();
      });
    });
    child.kill('SIGKILL');
    const { stdout } = await ended;
    expect(JSON.parse(stdout)).toMatchObject({ corrupted: 0, plans: 1, lastCalls: 0 });
    for (const name of readdirSync(temporary)) rmSync(join(temporary, name), { recursive: true, force: true });
  });

  it.each(['pytorch', 'expandable', 'gmlake'])('is refused with --allocator %s', async (allocator) => {
    const ended = await start(['run', '--plan', '--allocator', allocator, 'true']).ended;
    expect([ended.code, ended.stderr]).toEqual([2, expect.stringContaining('--plan works only with --allocator weir')]);
  });
});
