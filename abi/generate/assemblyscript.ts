// The tables as AssemblyScript: engine/abi/settings.ts and engine/abi/numbers.ts.
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
  type Value,
} from '../engine.ts';
import { BLOCK_UNIT, type Bounds, PRESETS, SETTINGS } from '../settings.ts';
import { type Field, type Numbered, pascal } from '../table.ts';
import { DIGEST } from './digest.ts';
import { layoutOf } from './layout.ts';
import { MARK } from './mark.ts';

/** File name -> text. */
export function assemblyscriptFiles(): ReadonlyMap<string, string> {
  return new Map([
    ['settings.ts', settingsFile()],
    ['numbers.ts', numbersFile()],
    ['statistics.ts', statisticsFile()],
  ]);
}

function settingsFile(): string {
  const variables = SETTINGS.map(
    (setting) =>
      `/** ${setting.doc}${setting.unit === 'share' ? ' In 1/65536.' : ''} */\nexport let ${setting.name}: u64 = ${setting.value};`,
  );
  const setters = SETTINGS.map(
    (setting, index) => `    case ${index}:\n${guard(setting.bounds)}      ${setting.name} = value;\n      return true;`,
  );
  const getters = SETTINGS.map((setting, index) => `    case ${index}:\n      return ${setting.name};`);
  const rounded = SETTINGS.map((setting, index) => (setting.bounds.multipleOf === 'handleUnit' ? index : -1)).filter((index) => index >= 0);
  const presets = PRESETS.map((preset, index) => {
    const calls = Object.entries(preset.values).map(([name, value]) => {
      const number = SETTINGS.findIndex((setting) => setting.name === name);
      const given = rounded.includes(number) ? `upToHandle(${value})` : String(value);
      return `      if (!setSetting(${number}, ${given})) return false;`;
    });
    return `    case ${index}:\n${calls.join('\n')}${calls.length > 0 ? '\n' : ''}      return true;`;
  });
  return `// The engine's settings: given once, before the first request.
${MARK}
${variables.join('\n')}

export const SETTING_COUNT: u32 = ${SETTINGS.length};

/** Sets the setting with this number; false if there is none, or the value is out of bounds. */
export function setSetting(index: u32, value: u64): bool {
  switch (index) {
${setters.join('\n')}
  }
  return false;
}

export function settingOf(index: u32): u64 {
  switch (index) {
${getters.join('\n')}
  }
  return 0;
}

/** Sets what a preset changes; handleUnit must be set before. False if there is no such preset. */
export function applyPreset(preset: u32): bool {
  switch (preset) {
${presets.join('\n')}
  }
  return false;
}

function upToHandle(bytes: u64): u64 {
  return (bytes + handleUnit - 1) & ~(handleUnit - 1);
}
`;
}

/** Refuses values out of bounds. */
function guard({ atLeast, atMost, multipleOf, powerOfTwo }: Bounds): string {
  const terms = [
    atLeast === undefined ? '' : `value >= ${atLeast}`,
    atMost === undefined ? '' : `value <= ${atMost}`,
    multipleOf === undefined ? '' : `value % ${multipleOf} === 0`,
    powerOfTwo ? 'popcnt<u64>(value) === 1' : '',
  ].filter((term) => term !== '');
  return terms.length > 0 ? `      if (!(${terms.join(' && ')})) return false;\n` : '';
}

function statisticsFile(): string {
  const counters = [...STATISTICS, ...PLAN_STATISTICS];
  const imports = (values: readonly Value[]) =>
    values
      .map((value) => value.variable)
      .sort()
      .join(', ');
  const cases = (values: readonly Value[]) =>
    values.map((value) => `    case ${value.number}:\n      return ${value.variable};`).join('\n');
  return `// Statistics and explanations by number.
${MARK}
import { ${imports(counters)} } from './counters';
import { ${imports(EXPLANATIONS)} } from './failure';

export function statisticOf(index: u32): u64 {
  switch (index) {
${cases(counters)}
  }
  return 0;
}

/** About the last request that failed. */
export function explanationOf(index: u32): u64 {
  switch (index) {
${cases(EXPLANATIONS)}
  }
  return 0;
}
`;
}

function numbersFile(): string {
  return `// Numbers at the engine's border: what its callers ask for and are told by number.
${MARK}
/** Hash over all tables: parts of different builds refuse to work together. */
export const ABI_DIGEST: u64 = ${DIGEST};

/** Blocks are multiples of this, and live memory is counted in it. */
export const BLOCK_UNIT: u64 = ${BLOCK_UNIT};

${[
  numbers('Statistic', 'u32', STATISTICS),
  numbers('PlanStatistic', 'u32', PLAN_STATISTICS),
  numbers('Explained', 'u32', EXPLANATIONS),
  numbers('Call', 'u32', DRIVER_CALLS),
  numbers('State', 'u8', RANGE_STATES),
  numbers('Freed', 'u32', FREE_RESULTS),
  numbers('Rule', 'u32', RULES),
  offsets('SnapshotRow', SNAPSHOT_ROW),
  offsets('PlanRow', PLAN_ROW),
  offsets('ReplayEvent', REPLAY_EVENT),
].join('\n\n')}
`;
}

function numbers(name: string, type: string, entries: readonly Numbered[]): string {
  const rows = entries.map((entry) => `  /** ${entry.doc} */\n  export const ${pascal(entry.name)}: ${type} = ${entry.number};`);
  return `export namespace ${name} {\n${rows.join('\n')}\n}`;
}

function offsets(name: string, fields: readonly Field[]): string {
  const layout = layoutOf(fields);
  const rows = fields
    .filter((field) => field.name !== 'unused')
    .map((field) => `  /** ${field.doc} */\n  export const ${pascal(field.name)}: usize = ${layout.offsets.get(field.name)};`);
  return `export namespace ${name} {\n${rows.join('\n')}\n  export const BYTES: usize = ${layout.bytes};\n}`;
}
