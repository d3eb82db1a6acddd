// The tables as a C header: build/native/weir_abi.h, for C11 and C++.
import { ADAPTER_OPTIONS, ADAPTER_RESULTS, ADAPTER_STACKS } from '../adapter.ts';
import { RUN_ALLOCATORS } from '../allocators.ts';
import { DRIVER_CALLS, EXPLANATIONS, FREE_RESULTS, PLAN_ROW, PLAN_STATISTICS, RANGE_STATES, SNAPSHOT_ROW, STATISTICS } from '../engine.ts';
import { CHILD_VARIABLES, USER_VARIABLES } from '../environment.ts';
import { EVENT, EVENT_FIELDS, EVENT_KINDS } from '../events.ts';
import { FORMATS } from '../formats.ts';
import { GAUGE_WORDS, GAUGES } from '../gauges.ts';
import { EXPANDABLE_CONF, SUPPORTED_PYTORCH } from '../pytorch.ts';
import * as ring from '../ring.ts';
import { BLOCK_UNIT, PRESETS, REGION_EIGHTHS, SETTINGS } from '../settings.ts';
import { type Field, type FieldType, type Numbered, screaming } from '../table.ts';
import { DIGEST } from './digest.ts';
import { layoutOf } from './layout.ts';

const C_TYPES: Readonly<Record<FieldType, string>> = {
  u8: 'uint8_t',
  u16: 'uint16_t',
  u32: 'uint32_t',
  u64: 'uint64_t',
  i32: 'int32_t',
  f64: 'double',
  char: 'char',
  pointer: 'const char *',
  gauges: 'weir_gauges',
};

export function headerFile(): string {
  const gaugeFields: Field[] = GAUGES.map((gauge) => ({ name: gauge.name, type: 'u64', doc: gauge.doc }));
  if (GAUGES.length < GAUGE_WORDS) {
    gaugeFields.push({ name: 'reserved_for_later', type: 'u64', dims: [GAUGE_WORDS - GAUGES.length], doc: 'Zero.' });
  }
  const indexed = (entries: readonly { readonly name: string; readonly doc: string }[]): Numbered[] =>
    entries.map((entry, number) => ({ ...entry, number }));
  return `/* Numbers, names and layouts that C shares with the other languages.
 * Generated from abi/ by \`npm run build\`; not committed. Edit the table, not this file. */
#ifndef WEIR_ABI_H
#define WEIR_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define WEIR_ABI_ASSERT static_assert
#else
#define WEIR_ABI_ASSERT _Static_assert
#endif

/* Hash over all tables: parts of different builds refuse to work together. */
#define WEIR_ABI_DIGEST ${DIGEST}ull

#define WEIR_BLOCK_UNIT ${BLOCK_UNIT}u
/* An arena reserves addresses for so many eighths of the GPU's memory. */
#define WEIR_REGION_EIGHTHS ${REGION_EIGHTHS}u

/* Settings of the engine. */
${enumeration('weir_setting', 'WEIR_SETTING_', withEnd(indexed(SETTINGS)))}

${enumeration('weir_preset', 'WEIR_PRESET_', indexed(PRESETS))}

${enumeration('weir_statistic', 'WEIR_STATISTIC_', withEnd(STATISTICS))}

${enumeration('weir_plan_statistic', 'WEIR_PLAN_STATISTIC_', withEnd(PLAN_STATISTICS))}

${enumeration('weir_explained', 'WEIR_EXPLAINED_', EXPLANATIONS)}

${enumeration('weir_driver_call', 'WEIR_DRIVER_CALL_', DRIVER_CALLS)}

${enumeration('weir_range_state', 'WEIR_RANGE_', RANGE_STATES)}

${enumeration('weir_free_result', 'WEIR_FREE_RESULT_', FREE_RESULTS)}

/* A range of an arena's addresses, as the engine's snapshot shows it. */
${structure('weir_range', SNAPSHOT_ROW)}

/* The head of a row of a plan; an offset for each turn follows. */
${structure('weir_plan_row', PLAN_ROW)}

/* Allocators that a job can run on. */
${RUN_ALLOCATORS.map((name) => `#define WEIR_ALLOCATOR_${name.toUpperCase()} ${JSON.stringify(name)}`).join('\n')}
#define WEIR_EXPANDABLE_CONF ${JSON.stringify(EXPANDABLE_CONF)}

/* The oldest PyTorch that the adapter knows is 2.n. */
#define WEIR_OLDEST_PYTORCH_MINOR ${SUPPORTED_PYTORCH[0]?.split('.')[1]}

/* Environment variables that a run sets for its processes. */
${CHILD_VARIABLES.map((entry) => `#define ${entry.variable} ${JSON.stringify(entry.variable)}`).join('\n')}

/* Environment variables that users set. */
${USER_VARIABLES.map((entry) => `#define WEIR_USER_${screaming(entry.name)} ${JSON.stringify(entry.variable)}`).join('\n')}

/* File formats. */
${FORMATS.filter((format) => format.magic && /^[\x20-\x7e]+$/.test(format.magic))
  .map(
    (format) =>
      `#define WEIR_${screaming(format.name)}_MAGIC ${JSON.stringify(format.magic)}\n#define WEIR_${screaming(format.name)}_VERSION ${format.version}u`,
  )
  .join('\n')}

#define WEIR_RING_DEVICES ${ring.RING_DEVICES}
#define WEIR_RING_STREAMS ${ring.RING_STREAMS}
#define WEIR_RING_POOLS ${ring.RING_POOLS}
#define WEIR_RING_STRING_BYTES ${ring.RING_STRING_BYTES}u
#define WEIR_RING_STACKS ${ring.RING_STACKS}u
#define WEIR_RING_FRAMES ${ring.RING_FRAMES}u
#define WEIR_RING_FRAME_STRING_BYTES ${ring.RING_FRAME_STRING_BYTES}u
#define WEIR_RING_STACK_DEPTH ${ring.RING_STACK_DEPTH}
#define WEIR_RING_FRAME_STRING_MOST ${ring.RING_FRAME_STRING_MOST}u
#define WEIR_PLAN_MOST_REQUESTS ${ring.PLAN_MOST_REQUESTS}u
#define WEIR_PLAN_MOST_TURNS ${ring.PLAN_MOST_TURNS}u
#define WEIR_PLAN_MOST_FOOTPRINT ${ring.PLAN_MOST_FOOTPRINT}ull

${enumeration('weir_ring_state', 'WEIR_RING_', ring.RING_STATES)}

/* Levels of one GPU, kept up to date by the process. A reader may see one a moment before another. */
${structure('weir_gauges', gaugeFields)}

${structure('weir_ring_header', ring.RING_HEADER)}

${structure('weir_ring_stack', ring.RING_STACK)}

${structure('weir_ring_frame', ring.RING_FRAME)}

${enumeration('weir_event_kind', 'WEIR_', EVENT_KINDS)}

${enumeration('weir_event_field', 'WEIR_EVENT_', EVENT_FIELDS)}

${structure('weir_event', EVENT)}

/* The file by which a plan reaches a process; sizes and offsets follow. */
${structure('weir_process_plan', ring.PROCESS_PLAN_HEADER)}

/* What Python hands to the adapter, and what the adapter answers. */
${structure('weir_torch_options', ADAPTER_OPTIONS)}

${enumeration('weir_torch_stacks', 'WEIR_TORCH_STACKS_', ADAPTER_STACKS)}

${enumeration('weir_torch_result', 'WEIR_TORCH_', ADAPTER_RESULTS)}

#endif
`;
}

/** With the number behind the last. */
function withEnd(entries: readonly Numbered[]): Numbered[] {
  return [...entries, { name: 'end', doc: 'Behind the last.', number: Math.max(...entries.map((entry) => entry.number)) + 1 }];
}

function enumeration(name: string, prefix: string, entries: readonly Numbered[]): string {
  const rows = entries.map((entry) => `  ${prefix}${screaming(entry.name).replace(/^_/, '')} = ${entry.number}, /* ${entry.doc} */`);
  return `enum ${name} {\n${rows.join('\n')}\n};`;
}

/** With its layout proven where it is compiled. */
function structure(name: string, fields: readonly Field[]): string {
  const layout = layoutOf(fields);
  const rows = fields.map(({ name: field, type, dims = [], doc }) => {
    const spaced = C_TYPES[type].endsWith('*') ? '' : ' ';
    return `  ${C_TYPES[type]}${spaced}${field}${dims.map((count) => `[${count}]`).join('')}; /* ${doc} */`;
  });
  const checks = fields.map(
    ({ name: field }) => `WEIR_ABI_ASSERT(offsetof(${name}, ${field}) == ${layout.offsets.get(field)}, "${name}.${field}");`,
  );
  return `typedef struct ${name} {\n${rows.join('\n')}\n} ${name};\n${checks.join('\n')}\nWEIR_ABI_ASSERT(sizeof(${name}) == ${layout.bytes}, "${name}");`;
}
