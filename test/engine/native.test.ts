// One engine in two forms: WebAssembly here and C made from it give the same address to every request, and make the same driver
// calls in the same order. Sanitizers check the native form.
import { spawnSync } from 'node:child_process';
import { beforeAll, describe, expect, test } from 'vitest';
import { ENGINE_SETTINGS, type EngineSettings } from '../../src/abi/settings.ts';
import { EngineAllocator, type EnginePlan } from '../../src/allocator/engine/allocator.ts';
import { GMLAKE_SETTINGS, WEIR_SETTINGS } from '../../src/allocator/engine/settings.ts';
import { MIB } from '../../src/base/bytes.ts';
import { opsOfTrace } from '../../src/plan/steps/memory-ops.ts';
import { enginePlanOf, findStep, planStep } from '../../src/plan/steps/step-plan.ts';
import { EventKind, type Trace } from '../../src/trace/trace.ts';
import { sampleTrace } from '../support/traces.ts';
import { PRESETS, randomProgram, type Step } from './drive.ts';
import { buildNative, type Sanitizer, whyNoNative } from './native/build.ts';
import { StrictBackend } from './strict-backend.ts';

/** A step on a numbered request. */
type Line =
  | `M ${number} ${number} ${number}`
  | `F ${number}`
  | `L ${number}`
  | `K ${number}`
  | `R ${number} ${number}`
  | 'E'
  | 'T'
  | `P ${string}`
  | `G ${number}`;

interface Conditions {
  readonly settings: EngineSettings;
  readonly capacity?: number;
  /** Driver calls that fail: from, to (exclusive). */
  readonly fails?: readonly [number, number];
}

/** Runs the program on WebAssembly and gives what the native form would print. */
function runOnWasm(lines: readonly Line[], { settings, capacity = Number.POSITIVE_INFINITY, fails = [0, 0] }: Conditions): string {
  const backend = new StrictBackend(capacity, (call) => call >= fails[0] && call < fails[1]);
  const allocator = new EngineAllocator({ backend, streams: [0], events: backend }, settings);
  const blocks: number[] = [];
  const output: string[] = [];
  let printed = 0;
  const printCalls = () => {
    while (printed < backend.calls.length) output.push(`d ${backend.calls[printed++]}`);
  };
  for (const line of lines) {
    const [kind, ...words] = line.split(' ');
    const numbers = words.map(Number);
    const block = blocks[numbers[0]!]!;
    if (kind === 'M') {
      const made = allocator.malloc(numbers[0]!, numbers[1]!, numbers[2]!);
      blocks.push(made);
      printCalls();
      output.push(`a ${made < 0 ? 0 : allocator.addressOf(made)}`);
    } else if (kind === 'E') allocator.emptyCache();
    else if (kind === 'P') output.push(`p ${allocator.installPlan(planOf(numbers))}`);
    else if (kind === 'G') allocator.forgetPlan(numbers[0]);
    else if (kind === 'T') {
      allocator.check(3);
      output.push('t 0');
    } else if (kind === 'R') {
      if (block >= 0) allocator.recordStream(block, numbers[1]!);
    } else if (block >= 0) {
      if (kind !== 'K') allocator.free(block);
      if (kind !== 'L') allocator.complete(block);
    }
    printCalls();
  }
  output.push(
    ...Object.entries(allocator.statistics)
      .filter(([name]) => name !== 'ownMemory')
      .map(([, value]) => `s ${value}`),
    ...Object.values(allocator.planStatistics).map((value) => `s ${value}`),
  );
  return output.join('\n');
}

/** The line that installs a plan, and its parser. */
function planLine({ requests, turns, offsets, footprint }: EnginePlan): Line {
  const rows = requests.map(({ size, stream }, index) => [size, stream, ...offsets.subarray(index * turns, (index + 1) * turns)].join(' '));
  return `P ${requests.length} ${turns} ${footprint} ${rows.join(' ')}`;
}

function planOf([count, turns, footprint, ...rest]: readonly number[]): EnginePlan {
  const width = 2 + turns!;
  const rows = Array.from({ length: count! }, (_, index) => rest.slice(index * width, (index + 1) * width));
  return {
    requests: rows.map(([size, stream]) => ({ size: size!, stream: stream! })),
    turns: turns!,
    offsets: Float64Array.from(rows.flatMap((row) => row.slice(2))),
    footprint: footprint!,
  };
}

function runNatively(path: string, lines: readonly Line[], { settings, capacity, fails }: Conditions): string {
  const head = ['handleUnit' as const, ...ENGINE_SETTINGS].map((name) => `S ${ENGINE_SETTINGS.indexOf(name)} ${settings[name]}`);
  if (capacity !== undefined) head.push(`C ${capacity}`);
  if (fails) head.push(`X ${fails[0]} ${fails[1]}`);
  const result = spawnSync(path, { input: [...head, ...lines].join('\n'), encoding: 'utf8', maxBuffer: 1 << 28 });
  if (result.status !== 0) throw new Error(`status ${result.status} ${result.signal}: ${result.stderr.slice(0, 2000)}`);
  return result.stdout.trimEnd().replace(/\nleft .*$/, '');
}

/** Chooses the same blocks as the harness of random programs, as numbers of requests. */
function toLines(program: readonly Step[]): Line[] {
  const lines: Line[] = [];
  const live: number[] = [];
  const pending: number[] = [];
  let requests = 0;
  const take = (list: number[], pick: number) => list.splice(Math.floor(pick * list.length), 1)[0];
  for (const step of program) {
    if (step.do === 'malloc') {
      lines.push(`M ${step.bytes} ${step.stream} ${step.pool}`);
      live.push(requests++);
    } else if (step.do === 'emptyCache') lines.push('E', 'T');
    else if (step.do === 'record') {
      if (live.length > 0) lines.push(`R ${live[Math.floor(step.pick * live.length)]!} ${step.stream}`);
    } else {
      const request = take(step.do === 'complete' ? pending : live, step.pick);
      if (request === undefined) continue;
      if (step.do === 'release') pending.push(request);
      lines.push(`${step.do === 'free' ? 'F' : step.do === 'release' ? 'L' : 'K'} ${request}`);
    }
  }
  lines.push('T');
  return lines;
}

function linesOf(trace: Trace): Line[] {
  const lines: Line[] = [];
  const numberOf = new Map<number, number>();
  let requests = 0;
  for (let event = 0; event < trace.events.count; event++) {
    const allocation = trace.allocationOf[event]!;
    if (trace.events.kind[event] === EventKind.Alloc) {
      lines.push(`M ${trace.events.size[event]!} ${trace.events.stream[event]!} ${trace.events.pool[event]!}`);
      numberOf.set(allocation, requests++);
    } else if (trace.events.kind[event] === EventKind.FreeCompleted) {
      const request = numberOf.get(allocation);
      if (request !== undefined) lines.push(`F ${request}`);
      numberOf.delete(allocation);
    }
  }
  lines.push('T');
  return lines;
}

const reason = whyNoNative();
describe.skipIf(reason !== undefined)(`native form against WebAssembly${reason ? ` (skipped: ${reason})` : ''}`, () => {
  let program = '';
  beforeAll(() => {
    program = buildNative('program', 'none');
  });

  test.each(Object.entries(PRESETS))('random programs, %s', (_, settings) => {
    for (let seed = 1; seed <= 8; seed++) {
      const lines = toLines(randomProgram(seed, { steps: 500, streams: 1 + (seed % 3) }));
      const conditions: Conditions = {
        settings,
        ...(seed % 2 === 0 ? { capacity: (100 + 40 * seed) * MIB } : {}),
        ...(seed % 4 === 3 ? { fails: [60 * seed, 60 * seed + 3] as const } : {}),
      };
      expect(runNatively(program, lines, conditions)).toBe(runOnWasm(lines, conditions));
    }
  });

  test.each([
    ['weir', 'resnet50-b100.native.pickle.gz', WEIR_SETTINGS],
    ['weir', 'vgg16-b100.native.pickle.gz', WEIR_SETTINGS],
    ['gmlake', 'vgg16-b100.native.pickle.gz', { ...GMLAKE_SETTINGS, minStitch: 2 * MIB }],
  ])('%s on the recorded run %s', (_, sample, settings) => {
    const lines = linesOf(sampleTrace(sample));
    expect(lines.length).toBeGreaterThan(1000);
    expect(runNatively(program, lines, { settings })).toBe(runOnWasm(lines, { settings }));
  });
});

/** A recorded run whose plan is installed twice in its course, and forgotten again. */
function plannedLines(sample: string): Line[] {
  const trace = sampleTrace(sample);
  const found = findStep(opsOfTrace(trace));
  if (!found.periodic) throw new Error(found.reason);
  const plan = planLine(enginePlanOf(planStep(found.step)));
  const lines = linesOf(trace);
  const third = Math.floor(lines.length / 3);
  return [...lines.slice(0, third), plan, ...lines.slice(third, 2 * third), plan, 'G 1', ...lines.slice(2 * third), 'G 0', 'E', 'T'];
}

describe.skipIf(reason !== undefined)('plans, native form against WebAssembly', () => {
  test.each(['resnet50-b100.native.pickle.gz', 'vgg16-b100.native.pickle.gz'])('%s', (sample) => {
    const program = buildNative('program', 'none');
    const lines = plannedLines(sample);
    const settings = WEIR_SETTINGS;
    const output = runNatively(program, lines, { settings });
    expect(output).toBe(runOnWasm(lines, { settings }));
    expect(Number(output.split('\n').at(-7)!.slice(2))).toBeGreaterThan(100);
    const fails = [2300, 2320] as const;
    expect(runNatively(program, lines, { settings, fails })).toBe(runOnWasm(lines, { settings, fails }));
  });
});

describe.each(['address,undefined', 'thread'] as const)('sanitizer %s', (sanitizer: Sanitizer) => {
  const missing = whyNoNative(sanitizer);

  test.skipIf(missing !== undefined)(`programs${missing ? ` (skipped: ${missing})` : ''}`, () => {
    const program = buildNative('program', sanitizer);
    for (const settings of Object.values(PRESETS)) {
      const lines = toLines(randomProgram(3, { steps: 300 }));
      runNatively(program, lines, { settings, capacity: 300 * MIB, fails: [100, 104] });
    }
    runNatively(program, plannedLines('vgg16-b100.native.pickle.gz'), { settings: WEIR_SETTINGS });
  });

  test.skipIf(missing !== undefined)(`threads${missing ? ` (skipped: ${missing})` : ''}`, () => {
    const threads = buildNative('threads', sanitizer);
    for (const mode of ['apart', 'shared']) {
      const result = spawnSync(threads, [mode], { encoding: 'utf8' });
      expect(`${result.stdout}${result.stderr}`.trim()).toBe('right');
    }
  });
});
