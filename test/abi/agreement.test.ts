// The four languages agree on every fact of abi/: TypeScript's copy is compared with what Python and a C compiler make of theirs,
// and with what the engine answers.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, describe, expect, it } from 'vitest';
import { compileProgram, hasCompiler } from '../../scripts/native-rules.mjs';
import { RUN_ALLOCATORS } from '../../src/abi/allocators.ts';
import {
  ABI_DIGEST,
  DRIVER_CALL_NAMES,
  Explained,
  FreeResult,
  PLAN_ROW_BYTES,
  PlanRowOffset,
  PlanStatistic,
  RangeState,
  SNAPSHOT_COLUMNS,
  Statistic,
} from '../../src/abi/engine.ts';
import { ChildVariable, OptionVariable, UserVariable } from '../../src/abi/environment.ts';
import { EVENT_BYTES, EventKind, EventOffset } from '../../src/abi/events.ts';
import { EXCHANGE_FILES, EXCHANGE_SHAPES } from '../../src/abi/exchange.ts';
import { Format } from '../../src/abi/formats.ts';
import { PYTORCH_TRUST, PYTORCH_VERSIONS, SUPPORTED_PYTORCH } from '../../src/abi/pytorch.ts';
import {
  GAUGE_NAMES,
  GAUGES_BYTES,
  PLAN_MOST_FOOTPRINT,
  PLAN_MOST_REQUESTS,
  PLAN_MOST_TURNS,
  PROCESS_PLAN_HEADER_BYTES,
  ProcessPlanOffset,
  RING_HEADER_BYTES,
  RingOffset,
  RingState,
} from '../../src/abi/ring.ts';
import { BLOCK_UNIT, ENGINE_DEFAULTS, ENGINE_PRESETS, ENGINE_SETTINGS, REGION_EIGHTHS } from '../../src/abi/settings.ts';
import { createWeir, type EngineAllocator } from '../../src/allocator/engine/allocator.ts';
import { instantiateEngine } from '../../src/allocator/engine/load.ts';
import { presetSettings } from '../../src/allocator/engine/settings.ts';
import { SimulatedBackend } from '../../src/backend/simulated.ts';
import { MIB } from '../../src/base/bytes.ts';
import { replay } from '../../src/replay/replay.ts';
import { readRecording } from '../../src/trace/detect.ts';
import { ROOT } from '../support/command.ts';

const folder = mkdtempSync(join(tmpdir(), 'weir-abi-'));
afterAll(() => rmSync(folder, { recursive: true }));

it('the generated files are what the tables give', () => {
  const { status, stderr } = spawnSync(process.execPath, ['build/abi/main.js', '--check'], { cwd: ROOT, encoding: 'utf8' });
  expect([status, stderr]).toEqual([0, '']);
});

describe('the engine', () => {
  const settingsOf = (engine: ReturnType<typeof instantiateEngine>) =>
    Object.fromEntries(ENGINE_SETTINGS.map((name, index) => [name, engine.settingF64(index)]));

  it('has the defaults of the table', () => {
    expect(settingsOf(instantiateEngine(new SimulatedBackend()))).toEqual(ENGINE_DEFAULTS);
  });

  it.each(Object.keys(ENGINE_PRESETS) as (keyof typeof ENGINE_PRESETS)[])('applies preset %s as TypeScript does', (preset) => {
    for (const unit of [2 * MIB, 4 * MIB, 32 * MIB]) {
      const engine = instantiateEngine(new SimulatedBackend());
      expect(engine.configureF64(ENGINE_SETTINGS.indexOf('handleUnit'), unit)).toBe(1);
      expect(engine.preset(Object.keys(ENGINE_PRESETS).indexOf(preset))).toBe(1);
      const { regionBytes, ...settings } = presetSettings(preset, unit);
      expect(regionBytes % unit).toBe(0);
      expect(settingsOf(engine)).toMatchObject(settings);
    }
  });

  it('counts each statistic under its own name', () => {
    // Both forms of the engine have the same generated switch, so only figures can show that two of its lines are exchanged.
    const [trace] = readRecording(gunzipSync(readFileSync(new URL('samples/gpt2xl-oom.pickle.gz', ROOT)))).traces;
    const backend = new SimulatedBackend();
    const { allocator } = replay(trace!, (context) => createWeir(context), { backend });
    const { ownMemory, ...statistics } = (allocator as EngineAllocator).statistics;
    expect(ownMemory).toBeGreaterThan(0);
    expect(statistics).toEqual({
      reserved: backend.usedBytes,
      peakReserved: 20835205120,
      allocated: 9415227392,
      inUse: 9415227392,
      peakInUse: 20671620096,
      requested: 9414873218,
      handles: 1041,
      keptStitches: 10,
      stitchedBytes: 12662603776,
      regions: 2,
      orphans: 0,
      blocks: 1745,
      fits: 18804,
      reuses: 5,
      growths: 502,
      stitches: 10,
      extensions: 1,
      carves: 3,
      evictions: 0,
      retries: 0,
      ooms: 0,
      borrows: 0,
      borrowedBytes: 0,
      waits: 0,
      events: 0,
      queries: 0,
      parked: 0,
    });
  });

  it('refuses values out of bounds and keeps the one it has', () => {
    const engine = instantiateEngine(new SimulatedBackend());
    for (const [name, value] of [
      ['handleUnit', 3 * MIB],
      ['lend', 2],
      ['fixedHandle', MIB],
      ['regionBytes', 0],
      ['smallLimit', 700],
    ] as const) {
      const index = ENGINE_SETTINGS.indexOf(name);
      expect([name, engine.configureF64(index, value), engine.settingF64(index)]).toEqual([name, 0, ENGINE_DEFAULTS[name]]);
    }
  });
});

const noCompiler = hasCompiler('c') ? '' : ' (skipped: no C compiler)';
describe.skipIf(noCompiler !== '')(`C${noCompiler}`, () => {
  /** Values of expressions, as a compiled program prints them. */
  function valuesOf(expressions: readonly string[]): number[] {
    const source = join(folder, 'values.c');
    const lines = expressions.map((expression) => `  printf("%lld\\n", (long long)(${expression}));`);
    writeFileSync(source, `#include <stdio.h>\n#include "weir_abi.h"\nint main(void) {\n${lines.join('\n')}\n  return 0;\n}\n`);
    const program = join(folder, 'values');
    compileProgram([source], 'test', program);
    return spawnSync(program, { encoding: 'utf8' }).stdout.trim().split('\n').map(Number);
  }
  const screaming = (name: string) =>
    name
      .replace(/([A-Z])/g, '_$1')
      .replace(/^_/, '')
      .toUpperCase();
  const enumeration = (prefix: string, numbers: Readonly<Record<string, number>>): [string, number][] =>
    Object.entries(numbers).map(([name, number]) => [`${prefix}${screaming(name)}`, number]);
  const fields = (type: string, offsets: Readonly<Record<string, number>>): [string, number][] =>
    Object.entries(offsets).map(([name, offset]) => [`offsetof(${type}, ${name})`, offset]);

  it('has the same numbers, layouts and sizes', () => {
    const expected: [string, number][] = [
      ['WEIR_ABI_DIGEST', ABI_DIGEST],
      ...ENGINE_SETTINGS.map((name, index): [string, number] => [`WEIR_SETTING_${screaming(name)}`, index]),
      ...Object.keys(ENGINE_PRESETS).map((name, index): [string, number] => [`WEIR_PRESET_${screaming(name)}`, index]),
      ...enumeration('WEIR_STATISTIC_', Statistic),
      ...enumeration('WEIR_PLAN_STATISTIC_', PlanStatistic),
      ...enumeration('WEIR_RANGE_', RangeState),
      ...enumeration('WEIR_FREE_RESULT_', FreeResult),
      ...enumeration('WEIR_EXPLAINED_', Explained),
      ...DRIVER_CALL_NAMES.map((name, index): [string, number] => [`WEIR_DRIVER_CALL_${screaming(name)}`, index]),
      ['WEIR_BLOCK_UNIT', BLOCK_UNIT],
      ['WEIR_REGION_EIGHTHS', REGION_EIGHTHS],
      ['WEIR_PLAN_MOST_REQUESTS', PLAN_MOST_REQUESTS],
      ['WEIR_PLAN_MOST_TURNS', PLAN_MOST_TURNS],
      ['WEIR_PLAN_MOST_FOOTPRINT', PLAN_MOST_FOOTPRINT],
      ['sizeof(weir_range)', 8 * SNAPSHOT_COLUMNS],
      ['sizeof(weir_plan_row)', PLAN_ROW_BYTES],
      ...fields('weir_plan_row', PlanRowOffset),
      ...enumeration('WEIR_', EventKind),
      ...enumeration('WEIR_RING_', RingState),
      ...GAUGE_NAMES.map((name, index): [string, number] => [`offsetof(weir_gauges, ${name})`, 8 * index]),
      ['sizeof(weir_gauges)', GAUGES_BYTES],
      ...fields('weir_ring_header', RingOffset),
      ['sizeof(weir_ring_header)', RING_HEADER_BYTES],
      ...fields('weir_event', EventOffset),
      ['sizeof(weir_event)', EVENT_BYTES],
      ...fields('weir_process_plan', ProcessPlanOffset),
      ['sizeof(weir_process_plan)', PROCESS_PLAN_HEADER_BYTES],
      ['WEIR_RING_VERSION', Format.ring.version],
      ['WEIR_PROCESS_PLAN_VERSION', Format.processPlan.version],
    ];
    const found = valuesOf(expected.map(([expression]) => expression));
    expect(expected.map(([expression], index) => [expression, found[index]])).toEqual(expected);
  });

  it("lays the adapter's options out as Python does", () => {
    const python = pythonValues() as PythonValues;
    const expected = Object.entries(python.options).map(([name, offset]): [string, number] => [
      `offsetof(weir_torch_options, ${name})`,
      offset,
    ]);
    expected.push(['sizeof(weir_torch_options)', python.optionsBytes]);
    const found = valuesOf(expected.map(([expression]) => expression));
    expect(expected.map(([expression], index) => [expression, found[index]])).toEqual(expected);
  });
});

interface PythonValues {
  readonly options: Readonly<Record<string, number>>;
  readonly optionsBytes: number;
}

const SCRIPT = `
import ctypes, json, sys
sys.path.insert(0, "python/weir_gpu")
import abi
named = lambda holder: {name: value for name, value in vars(holder).items() if not name.startswith("_")}
shapes = [value for value in vars(abi).values() if isinstance(value, type) and issubclass(value, abi.Shape) and value is not abi.Shape]
print(json.dumps({
    "digest": abi.DIGEST,
    "allocators": abi.ALLOCATORS,
    "pytorch": abi.SUPPORTED_PYTORCH,
    "trusted": [{"version": version, "trust": trust} for version, trust in abi.PYTORCH_VERSIONS.items()],
    "trust": abi.PYTORCH_TRUST,
    "exchange": abi.EXCHANGE_VERSION,
    "child": named(abi.ChildVariable),
    "user": named(abi.UserVariable),
    "option": named(abi.OptionVariable),
    "gauges": abi.GAUGES,
    "gaugesBytes": ctypes.sizeof(abi.Gauges),
    "options": {name: getattr(abi.AdapterOptions, name).offset for name, _ in abi.AdapterOptions._fields_},
    "optionsBytes": ctypes.sizeof(abi.AdapterOptions),
    "files": {shape.__name__: shape.FILE for shape in shapes if hasattr(shape, "FILE")},
    "keys": {shape.__name__: {key: optional for _, key, _, optional in shape.FIELDS} for shape in shapes},
}))
`;

function pythonValues(): unknown {
  const { stdout, stderr } = spawnSync('python3', ['-c', SCRIPT], { cwd: ROOT, encoding: 'utf8' });
  if (stdout === '') throw new Error(stderr);
  return JSON.parse(stdout);
}

const noPython = spawnSync('python3', ['--version']).status === 0 ? '' : ' (skipped: no python3)';
describe.skipIf(noPython !== '')(`Python${noPython}`, () => {
  it('has the same names, layouts and shapes', () => {
    const snake = (name: string) => name.replace(/([A-Z])/g, '_$1').toUpperCase();
    const named = (variables: Readonly<Record<string, string>>) =>
      Object.fromEntries(Object.entries(variables).map(([name, variable]) => [snake(name), variable]));
    const keys = Object.entries(EXCHANGE_SHAPES).map(([shape, fields]) => [
      shape,
      Object.fromEntries(Object.entries(fields).map(([key, { optional }]) => [key, optional])),
    ]);
    expect(pythonValues()).toMatchObject({
      digest: ABI_DIGEST,
      allocators: RUN_ALLOCATORS,
      pytorch: SUPPORTED_PYTORCH,
      trusted: PYTORCH_VERSIONS,
      trust: PYTORCH_TRUST,
      exchange: Format.exchange.version,
      child: named(ChildVariable),
      user: named(UserVariable),
      option: named(OptionVariable),
      gauges: GAUGE_NAMES,
      gaugesBytes: GAUGES_BYTES,
      files: EXCHANGE_FILES,
      keys: Object.fromEntries(keys),
    });
  });
});
