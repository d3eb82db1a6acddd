// The tables as TypeScript: src/abi/*.ts, for the command, the page and the tests.
import { ALLOCATORS, RUN_ALLOCATORS } from '../allocators.ts';
import {
  DRIVER_CALLS,
  EXPLANATIONS,
  FREE_RESULTS,
  PLAN_ROW,
  PLAN_STATISTICS,
  RANGE_STATES,
  REPLAY_EVENT,
  RULES,
  SNAPSHOT_ROW,
  STATISTICS,
} from '../engine.ts';
import {
  CHILD_VARIABLES,
  LARGE_REQUEST,
  LEAST_LIMIT,
  OPTION_VARIABLES,
  OWN_EXIT_CODE,
  USER_VARIABLES,
  type Variable,
} from '../environment.ts';
import { CATEGORIES, EVENT, EVENT_FIELDS, EVENT_KINDS, PHASE_MARKS } from '../events.ts';
import { FORK_FILE, SHAPES, type ShapeType, SUPERVISOR_FILE } from '../exchange.ts';
import { FORMATS } from '../formats.ts';
import { GAUGES } from '../gauges.ts';
import { CONF_VARIABLES, EXPANDABLE_CONF, PYTORCH_TRUST, PYTORCH_VERSIONS, SUPPORTED_PYTORCH } from '../pytorch.ts';
import * as ring from '../ring.ts';
import { BLOCK_UNIT, LENDING, PRESETS, type Preset, REGION_EIGHTHS, SETTINGS } from '../settings.ts';
import { type Entry, type Field, type Numbered, pascal } from '../table.ts';
import { DIGEST } from './digest.ts';
import { layoutOf } from './layout.ts';
import { MARK } from './mark.ts';

/** File name -> text. */
export function typescriptFiles(): ReadonlyMap<string, string> {
  return new Map([
    ['settings.ts', settingsFile()],
    ['engine.ts', engineFile()],
    ['ring.ts', ringFile()],
    ['events.ts', eventsFile()],
    ['formats.ts', formatsFile()],
    ['exchange.ts', exchangeFile()],
    ['environment.ts', environmentFile()],
    ['allocators.ts', allocatorsFile()],
    ['pytorch.ts', pytorchFile()],
  ]);
}

function file(purpose: string, ...parts: readonly string[]): string {
  return `// ${purpose}\n${MARK}\n${parts.join('\n\n')}\n`;
}

function docLine(text: string, indent = ''): string {
  return `${indent}/** ${text} */\n`;
}

function text(value: string): string {
  return JSON.stringify(value);
}

/** `export const Name = { Entry: 1, … } as const;` */
function numbers(name: string, entries: readonly Numbered[], key: (name: string) => string = (same) => same): string {
  const rows = entries.map((entry) => `${docLine(entry.doc, '  ')}  ${key(entry.name)}: ${entry.number},`);
  return `export const ${name} = {\n${rows.join('\n')}\n} as const;`;
}

function names(name: string, entries: readonly Entry[]): string {
  return `export const ${name} = [\n${entries.map((entry) => `  ${text(entry.name)},`).join('\n')}\n] as const;`;
}

function offsets(name: string, fields: readonly Field[], bytes: string): string {
  const layout = layoutOf(fields);
  const rows = fields
    .filter((field) => !/^(zero_\d|unused)$/.test(field.name))
    .map((field) => `${docLine(field.doc, '  ')}  ${field.name}: ${layout.offsets.get(field.name)},`);
  return `export const ${name} = {\n${rows.join('\n')}\n} as const;\nexport const ${bytes} = ${layout.bytes};`;
}

function settingsFile(): string {
  const type = (unit: string) => (unit === 'flag' ? '0 | 1' : 'number');
  const members = SETTINGS.map(
    (setting) =>
      `${docLine(`${setting.doc}${setting.unit === 'share' ? ' In 1/65536.' : ''}`, '  ')}  readonly ${setting.name}: ${type(setting.unit)};`,
  );
  const defaults = SETTINGS.map((setting) => `  ${setting.name}: ${setting.value},`);
  const presetRows = (presets: readonly Preset[]) =>
    presets.map((preset) => {
      const values = Object.entries(preset.values).map(([name, value]) => `${name}: ${value}`);
      return `${docLine(preset.doc, '  ')}  ${preset.name}: ${values.length > 0 ? `{ ${values.join(', ')} }` : '{}'},`;
    });
  const presetType = (presets: readonly Preset[]) =>
    `Readonly<Record<${presets.map((preset) => text(preset.name)).join(' | ')}, Partial<EngineSettings>>>`;
  const rounded = SETTINGS.filter((setting) => setting.bounds.multipleOf === 'handleUnit').map((setting) => text(setting.name));
  return file(
    "The engine's settings, presets and rules of lending.",
    `export interface EngineSettings {\n${members.join('\n')}\n}`,
    `/** In the order of their numbers. */\nexport const ENGINE_SETTINGS: readonly (keyof EngineSettings)[] = [\n${SETTINGS.map((setting) => `  ${text(setting.name)},`).join('\n')}\n];`,
    `export const ENGINE_DEFAULTS: EngineSettings = {\n${defaults.join('\n')}\n};`,
    `/** Values that differ from the defaults. */\nexport const ENGINE_PRESETS: ${presetType(PRESETS)} = {\n${presetRows(PRESETS).join('\n')}\n};`,
    `/** Values that differ from the defaults. */\nexport const LENDING_RULES: ${presetType(LENDING)} = {\n${presetRows(LENDING).join('\n')}\n};`,
    `/** Rounded up to handleUnit when a preset is applied. */\nexport const HANDLE_MULTIPLES: readonly (keyof EngineSettings)[] = [${rounded.join(', ')}];`,
    `/** An arena reserves addresses for so many eighths of the GPU's memory. */\nexport const REGION_EIGHTHS = ${REGION_EIGHTHS};`,
    `/** Blocks are multiples of this, and live memory is counted in it. */\nexport const BLOCK_UNIT = ${BLOCK_UNIT};`,
  );
}

function engineFile(): string {
  const words = RANGE_STATES.map((state) => `  ${state.number}: ${text(state.name)},`);
  const calls = DRIVER_CALLS.map((call) => `  ${text(call.name)},`);
  const places = SNAPSHOT_ROW.map((field, index) => `  ${field.name}: ${index},`);
  const rules = RULES.map((rule) => `  ${rule.number}: ${text(rule.doc)},`);
  return file(
    "Numbers at the engine's border.",
    `/** Hash over all tables: parts of different builds refuse to work together. */\nexport const ABI_DIGEST = ${DIGEST};`,
    numbers('Statistic', STATISTICS),
    numbers('PlanStatistic', PLAN_STATISTICS),
    numbers('Explained', EXPLANATIONS),
    `/** Driver calls by number. */\nexport const DRIVER_CALL_NAMES = [\n${calls.join('\n')}\n] as const;`,
    numbers('RangeState', RANGE_STATES, pascal),
    `export const RANGE_STATE_NAMES = {\n${words.join('\n')}\n} as const;`,
    numbers('FreeResult', FREE_RESULTS, pascal),
    `/** Places of values in a row of a snapshot. */\nexport const SnapshotColumn = {\n${places.join('\n')}\n} as const;\nexport const SNAPSHOT_COLUMNS = ${SNAPSHOT_ROW.length};`,
    offsets('PlanRowOffset', PLAN_ROW, 'PLAN_ROW_BYTES'),
    offsets('ReplayEventOffset', REPLAY_EVENT, 'REPLAY_EVENT_BYTES'),
    `/** Invariants by the number that the engine's check gives. */\nexport const ENGINE_RULES: Readonly<Record<number, string>> = {\n${rules.join('\n')}\n};`,
  );
}

function ringFile(): string {
  const constants = {
    RING_DEVICES: ring.RING_DEVICES,
    RING_STREAMS: ring.RING_STREAMS,
    RING_POOLS: ring.RING_POOLS,
    RING_STRING_BYTES: ring.RING_STRING_BYTES,
    RING_STACKS: ring.RING_STACKS,
    RING_FRAMES: ring.RING_FRAMES,
    RING_FRAME_STRING_BYTES: ring.RING_FRAME_STRING_BYTES,
    RING_STACK_DEPTH: ring.RING_STACK_DEPTH,
    RING_FRAME_STRING_MOST: ring.RING_FRAME_STRING_MOST,
    RING_ROWS: ring.RING_ROWS,
    LEAST_RING_ROWS: ring.LEAST_RING_ROWS,
    MOST_RING_ROWS: ring.MOST_RING_ROWS,
    GAUGES_BYTES: ring.GAUGES_BYTES,
    PLAN_MOST_REQUESTS: ring.PLAN_MOST_REQUESTS,
    PLAN_MOST_TURNS: ring.PLAN_MOST_TURNS,
    PLAN_MOST_FOOTPRINT: ring.PLAN_MOST_FOOTPRINT,
  };
  const sizes = ring.RING_HEADER.filter((field) => field.type === 'char').map(
    (field) => `export const RING_${field.name.toUpperCase()}_BYTES = ${field.dims?.[0]};`,
  );
  return file(
    'The ring of a process and the file of a plan on its way to one, byte by byte.',
    Object.entries(constants)
      .map(([name, value]) => `export const ${name} = ${value};`)
      .join('\n'),
    sizes.join('\n'),
    numbers('RingState', ring.RING_STATES),
    offsets('RingOffset', ring.RING_HEADER, 'RING_HEADER_BYTES'),
    offsets('RingStackOffset', ring.RING_STACK, 'RING_STACK_BYTES'),
    offsets('RingFrameOffset', ring.RING_FRAME, 'RING_FRAME_BYTES'),
    `/** The gauges of one GPU, in order, a u64 each. */\n${names('GAUGE_NAMES', GAUGES)}\nexport type GaugeName = (typeof GAUGE_NAMES)[number];`,
    `export const GAUGE_DOCS: Readonly<Record<GaugeName, string>> = {\n${GAUGES.map((gauge) => `  ${gauge.name}: ${text(gauge.doc)},`).join('\n')}\n};`,
    offsets('ProcessPlanOffset', ring.PROCESS_PLAN_HEADER, 'PROCESS_PLAN_HEADER_BYTES'),
  );
}

function eventsFile(): string {
  return file(
    'Events of a recording: kinds and layout.',
    `${numbers('EventKind', EVENT_KINDS)}\nexport type EventKind = (typeof EventKind)[keyof typeof EventKind];`,
    `/** What memory holds, by number. */\n${names('CATEGORY_NAMES', CATEGORIES)}\nexport type Category = (typeof CATEGORY_NAMES)[number];`,
    `/** Marks that a process sets by itself. */\nexport const PhaseMark = {\n${PHASE_MARKS.map((mark) => `${docLine(mark.doc, '  ')}  ${mark.name}: ${text(mark.text)},`).join('\n')}\n} as const;`,
    numbers('EventField', EVENT_FIELDS),
    offsets('EventOffset', EVENT, 'EVENT_BYTES'),
  );
}

function formatsFile(): string {
  const rows = FORMATS.map((format) => {
    const magic = format.magic === undefined ? '' : ` magic: ${text(format.magic)},`;
    const minor = format.minor === undefined ? '' : ` minor: ${format.minor},`;
    return `${docLine(format.doc, '  ')}  ${format.name}: {${magic} version: ${format.version},${minor} },`;
  });
  return file('Magic bytes (a character each) and versions of file formats.', `export const Format = {\n${rows.join('\n')}\n} as const;`);
}

function exchangeFile(): string {
  const type = (shape: ShapeType): string => {
    if (typeof shape === 'string')
      return { text: 'string', number: 'number', whole: 'number', flag: 'boolean', numbers: 'readonly number[]' }[shape];
    if ('object' in shape) return shape.object;
    if ('list' in shape) return `readonly ${shape.list}[]`;
    return shape.choice.map(text).join(' | ');
  };
  const interfaces = SHAPES.map((shape) => {
    const members = shape.fields.map(
      (field) =>
        `${docLine(field.doc, '  ')}  readonly ${field.name}${field.optional ? '?' : ''}: ${type(field.type)}${field.optional ? ' | null | undefined' : ''};`,
    );
    return `${docLine(shape.doc)}export interface ${shape.name} {\n${members.join('\n')}\n}`;
  });
  const schema = SHAPES.map(
    (shape) =>
      `  ${shape.name}: {\n${shape.fields.map((field) => `    ${field.name}: ${JSON.stringify({ type: field.type, optional: field.optional ?? false })},`).join('\n')}\n  },`,
  );
  const files = SHAPES.filter((shape) => shape.file).map(
    (shape) => `${docLine(shape.doc, '  ')}  ${shape.name}: ${text(shape.file ?? '')},`,
  );
  return file(
    'JSON files between a process and its supervisor.',
    `/** What follows the process id in the name of each file. */\nexport const EXCHANGE_FILES = {\n${files.join('\n')}\n} as const;`,
    ...interfaces,
    `/** Who supervises a process that runs without \`weir run\`, as \`<pid> <start>\`. */\nexport const SUPERVISOR_FILE = ${text(SUPERVISOR_FILE)};`,
    `/** \`<pid>\` and this: a fork that relies on the same supervisor, as \`<pid> <start>\`. */\nexport const FORK_FILE = ${text(FORK_FILE)};`,
    `/** Shapes by name. */\nexport interface ExchangeShapes {\n${SHAPES.map((shape) => `  readonly ${shape.name}: ${shape.name};`).join('\n')}\n}`,
    `export interface FieldShape {\n  readonly type: 'text' | 'number' | 'whole' | 'flag' | 'numbers' | { readonly object: keyof ExchangeShapes } | { readonly list: keyof ExchangeShapes } | { readonly choice: readonly string[] };\n  readonly optional: boolean;\n}`,
    `export const EXCHANGE_SHAPES: Readonly<Record<keyof ExchangeShapes, Readonly<Record<string, FieldShape>>>> = {\n${schema.join('\n')}\n};`,
  );
}

function environmentFile(): string {
  const rows = (variables: readonly Variable[]) =>
    variables.map((entry) => `${docLine(entry.doc, '  ')}  ${entry.name}: ${text(entry.variable)},`).join('\n');
  return file(
    'Environment variables for child processes, and those that users set.',
    `/** A run sets them for its processes, and nobody else does. */\nexport const ChildVariable = {\n${rows(CHILD_VARIABLES)}\n} as const;`,
    `/** Bytes of the smallest limit: no process can work with less. */\nexport const LEAST_LIMIT = ${LEAST_LIMIT};`,
    `/** Bytes of the requests that \`--stacks large\` is about. */\nexport const LARGE_REQUEST = ${LARGE_REQUEST};`,
    `/** Exit code of Weir's own failures around a command. */\nexport const OWN_EXIT_CODE = ${OWN_EXIT_CODE};`,
    `export const UserVariable = {\n${rows(USER_VARIABLES)}\n} as const;`,
    `/** The options that \`weir run\` and \`weir_gpu.enable()\` share. */\nexport const OptionVariable = {\n${rows(OPTION_VARIABLES)}\n} as const;`,
  );
}

function allocatorsFile(): string {
  const list = (chosen: readonly Entry[]) => chosen.map((entry) => text(entry.name)).join(', ');
  const docs = ALLOCATORS.map((entry) => `  ${entry.name}: ${text(entry.doc)},`);
  return file(
    'Allocators by name.',
    `export const ALLOCATOR_NAMES = [${list(ALLOCATORS)}] as const;\nexport type AllocatorName = (typeof ALLOCATOR_NAMES)[number];`,
    `/** Those that a job can run on. */\nexport const RUN_ALLOCATORS = [${RUN_ALLOCATORS.map(text).join(', ')}] as const;\nexport type RunAllocator = (typeof RUN_ALLOCATORS)[number];`,
    `/** Those that are policies of the engine. */\nexport const ENGINE_ALLOCATORS = [${list(ALLOCATORS.filter((entry) => entry.preset))}] as const;\nexport type EngineAllocatorName = (typeof ENGINE_ALLOCATORS)[number];`,
    `export const ALLOCATOR_DOCS: Readonly<Record<AllocatorName, string>> = {\n${docs.join('\n')}\n};`,
  );
}

function pytorchFile(): string {
  return file(
    'PyTorch versions that the adapter knows, and variables that PyTorch reads.',
    `export const SUPPORTED_PYTORCH = ${JSON.stringify(SUPPORTED_PYTORCH)} as const;`,
    `/** What the tests of Weir have seen of a version, the most first. */\nexport const PYTORCH_TRUST = {\n${PYTORCH_TRUST.map(({ name, doc }) => `  ${name}: ${text(doc)},`).join('\n')}\n} as const;\nexport type PytorchTrust = keyof typeof PYTORCH_TRUST;`,
    `/** Ascending. */\nexport const PYTORCH_VERSIONS: readonly { readonly version: string; readonly trust: PytorchTrust }[] = ${JSON.stringify(PYTORCH_VERSIONS)};`,
    `export const CONF_VARIABLES = ${JSON.stringify(CONF_VARIABLES)} as const;`,
    `export const EXPANDABLE_CONF = ${text(EXPANDABLE_CONF)};`,
  );
}
