// What is simulated is what runs: the C form of the engine under `weir run` and the WebAssembly form in `weir replay` follow the
// same policy, with defaults and presets. Compared after every event of real recordings.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ENGINE_PRESETS } from '../../src/abi/settings.ts';
import type { EngineAllocator } from '../../src/allocator/engine/allocator.ts';
import { chooseAllocators } from '../../src/allocator/registry.ts';
import { SimulatedBackend } from '../../src/backend/simulated.ts';
import { GIB } from '../../src/base/bytes.ts';
import { replay } from '../../src/replay/replay.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { EventKind, type Trace } from '../../src/trace/trace.ts';
import { MAIN, ROOT } from '../support/command.ts';
import { buildPolicyJob, whyNoNative } from './build.ts';

const TOTAL = 64 * GIB;
const folder = mkdtempSync(join(tmpdir(), 'weir-policy-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Run {
  /** Options of `weir run`, and how `weir replay` names the same allocator. */
  readonly options: readonly string[];
  readonly replayed: string;
  /** The sample to run; all, if none is named. */
  readonly only?: string;
}

const valuesOf = (preset: keyof typeof ENGINE_PRESETS) =>
  Object.entries(ENGINE_PRESETS[preset])
    .map(([name, value]) => `${name}:${value}`)
    .join(',');
const RUNS: Readonly<Record<string, Run>> = {
  'preset weir': { options: [], replayed: 'weir' },
  'preset weir, no lending': { options: ['--no-lend'], replayed: 'weir[lend:0]' },
  'preset gmlake': { options: ['--allocator', 'gmlake'], replayed: 'gmlake' },
  'preset fine': { options: ['--swap', '20GiB'], replayed: `weir[${valuesOf('fine')}]` },
  // Of a run whose steps are equal, a plan might be made.
  'preset planned': { options: ['--plan'], replayed: `weir[${valuesOf('planned')}]`, only: 'gpt2xl-oom.pickle.gz' },
};
const SAMPLES = ['gpt2xl-oom.pickle.gz', 'resnet50-b100.native.pickle.gz'];

/** The requests and frees of a recording, for the job; what was live before the recording is left out. */
function writeRequests(sample: string): { path: string; slots: number } {
  const [trace] = readRecording(gunzipSync(readFileSync(new URL(`samples/${sample}`, ROOT)))).traces;
  const { events } = trace!;
  const live = new Map<number, number>();
  const rows: bigint[] = [];
  let slots = 0;
  for (let event = 0; event < events.count; event++) {
    const address = events.address[event]!;
    if (events.kind[event] === EventKind.Alloc) {
      live.set(address, slots);
      rows.push(BigInt(slots++), BigInt(events.size[event]!), BigInt(events.stream[event]!) * 4096n);
    } else if (events.kind[event] === EventKind.FreeCompleted && live.has(address)) {
      rows.push(BigInt(live.get(address)!), 0n, 0n);
      live.delete(address);
    }
  }
  const path = join(folder, `${sample}.requests`);
  writeFileSync(path, BigUint64Array.from(rows));
  return { path, slots };
}

/** Reserved memory after each request and free, as the job's own rows tell it. */
function recordedLevels({ events }: Trace): number[] {
  const levels: number[] = [];
  let reserved = 0;
  for (let event = 0; event < events.count; event++) {
    // The row for reserved memory comes before that of the request that needed it.
    if (events.kind[event] === EventKind.Reserved) reserved = events.size[event]!;
    else if (events.kind[event] === EventKind.Alloc || events.kind[event] === EventKind.FreeCompleted) levels.push(reserved);
  }
  return levels;
}

function replayedLevels(trace: Trace, allocator: string): { levels: number[]; stitches: number } {
  const levels: number[] = [];
  const replayed = replay(trace, chooseAllocators(allocator)[0]!.create, {
    backend: new SimulatedBackend({ capacity: TOTAL }),
    deviceBytes: TOTAL,
    observer: {
      placed: () => {},
      after: (event, { reservedBytes }) => {
        const kind = trace.events.kind[event];
        if (kind === EventKind.Alloc || kind === EventKind.FreeCompleted) levels.push(reservedBytes);
      },
    },
  });
  return { levels, stitches: (replayed.allocator as EngineAllocator).statistics.stitches };
}

const reason = whyNoNative();
describe.skipIf(reason !== undefined)(`the policy that runs is the policy that is replayed${reason ? ` (skipped: ${reason})` : ''}`, () => {
  let job = '';
  beforeAll(() => {
    job = new URL(buildPolicyJob(), ROOT).pathname;
  });

  describe.each(SAMPLES)('%s', (sample) => {
    test.each(Object.entries(RUNS).filter(([, { only }]) => only === undefined || only === sample))('%s', (_, { options, replayed }) => {
      const { path, slots } = writeRequests(sample);
      const here = mkdtempSync(join(folder, 'run-'));
      const weir = (...words: string[]) => {
        const { status, stdout, stderr } = spawnSync(process.execPath, [MAIN, ...words], { cwd: here, encoding: 'utf8' });
        if (status !== 0) throw new Error(`weir ${words.join(' ')}: ${status}: ${stderr}`);
        return JSON.parse(stdout);
      };
      const ran = weir('run', '-q', '--no-what-if', '-o', 'run.weir', ...options, '--', job, path, String(slots), String(TOTAL));
      const file = readdirSync(here).find((name) => /^run\.\d+\.weir$/.test(name))!;
      const [trace] = readRecording(readFileSync(join(here, file))).traces;
      expect(ran.requests).toBe(slots);

      const [row] = weir('replay', '-q', '--json', '--allocator', replayed, file).results;
      expect([row.peakReserved, row.ooms]).toEqual([ran.peakReserved, ran.failures]);
      const calls: Record<string, number> = row.driver.calls;
      expect(Object.values(calls).reduce((sum, count) => sum + count, 0)).toBe(ran.driverCalls);

      const recorded = recordedLevels(trace!);
      const { levels: modelled, stitches } = replayedLevels(trace!, replayed);
      expect(stitches).toBe(ran.stitches);
      expect(modelled).toHaveLength(recorded.length);
      const first = recorded.findIndex((bytes, index) => bytes !== modelled[index]);
      expect([first, recorded[first], modelled[first]]).toEqual([-1, undefined, undefined]);
    });
  });
});
