// The tables as Python: python/weir_gpu/abi.py. Classes for the JSON files read with a check and write without one.
import { ADAPTER_OPTIONS, ADAPTER_STACKS } from '../adapter.ts';
import { ALLOCATORS, RUN_ALLOCATORS } from '../allocators.ts';
import { CHILD_VARIABLES, LARGE_REQUEST, LEAST_LIMIT, OPTION_VARIABLES, OWN_EXIT_CODE, USER_VARIABLES } from '../environment.ts';
import { CATEGORIES, PHASE_MARKS } from '../events.ts';
import { FORK_FILE, SHAPES, type Shape, type ShapeType, SUPERVISOR_FILE } from '../exchange.ts';
import { FORMATS } from '../formats.ts';
import { GAUGE_WORDS, GAUGES } from '../gauges.ts';
import { EXPANDABLE_CONF, PYTORCH_TRUST, PYTORCH_VERSIONS, SUPPORTED_PYTORCH } from '../pytorch.ts';
import { LEAST_RING_ROWS, MOST_RING_ROWS, RING_ROWS } from '../ring.ts';
import { type FieldType, screaming, snake } from '../table.ts';
import { DIGEST } from './digest.ts';

const CTYPES: Readonly<Partial<Record<FieldType, string>>> = { u32: 'c_uint32', u64: 'c_uint64', i32: 'c_int32', pointer: 'c_char_p' };
const RESERVED = new Set(['class', 'from', 'in', 'is', 'not']);

export function pythonFile(): string {
  const list = (values: readonly string[]) =>
    `(${values.map((value) => JSON.stringify(value)).join(', ')}${values.length === 1 ? ',' : ''})`;
  const options = ADAPTER_OPTIONS.map((field) => {
    const type = CTYPES[field.type];
    if (!type) throw new Error(`no type of ctypes for ${field.name}`);
    return `        ("${field.name}", ctypes.${type}),  # ${field.doc}`;
  });
  const version = FORMATS.find((format) => format.name === 'exchange')?.version;
  return `"""Numbers, names and layouts that Python shares with the other languages.

Generated from abi/ by \`npm run build\`; not committed. Edit the table, not this file."""

import ctypes

# Hash over all tables: parts of different builds refuse to work together.
DIGEST = ${DIGEST}

# Allocators that a job can run on; the last list are policies of Weir's engine.
ALLOCATORS = ${list(RUN_ALLOCATORS)}
ENGINE_ALLOCATORS = ${list(ALLOCATORS.filter((entry) => entry.preset).map((entry) => entry.name))}
EXPANDABLE_CONF = "${EXPANDABLE_CONF}"

# Minor versions of PyTorch that the adapter knows, ascending; what was seen of each; the words for that.
SUPPORTED_PYTORCH = ${list(SUPPORTED_PYTORCH)}
PYTORCH_VERSIONS = {
${PYTORCH_VERSIONS.map(({ version, trust }) => `    "${version}": "${trust}",`).join('\n')}
}
PYTORCH_TRUST = {
${PYTORCH_TRUST.map(({ name, doc }) => `    "${name}": ${JSON.stringify(doc)},`).join('\n')}
}

RING_ROWS = ${RING_ROWS}
LEAST_RING_ROWS = ${LEAST_RING_ROWS}
MOST_RING_ROWS = ${MOST_RING_ROWS}
# Bytes of the smallest limit.
LEAST_LIMIT = ${LEAST_LIMIT}
# Call stacks by name; bytes of the requests that \`large\` is about.
STACKS = {${ADAPTER_STACKS.map(({ name, number }) => `"${name}": ${number}`).join(', ')}}
LARGE_REQUEST = ${LARGE_REQUEST}
EXCHANGE_VERSION = ${version}
# Who supervises a process that runs without \`weir run\`, as \`<pid> <start>\`.
SUPERVISOR_FILE = "${SUPERVISOR_FILE}"
FORK_FILE = "${FORK_FILE}"

# Exit code of Weir's own failures around a command.
OWN_EXIT_CODE = ${OWN_EXIT_CODE}


class ChildVariable:
    """Set by a run for its processes."""

${CHILD_VARIABLES.map((entry) => `    ${screaming(entry.name)} = "${entry.variable}"  # ${entry.doc}`).join('\n')}


class OptionVariable:
    """Set by users: options that \`weir run\` and \`weir_gpu.enable()\` share."""

${OPTION_VARIABLES.map((entry) => `    ${screaming(entry.name)} = "${entry.variable}"  # ${entry.doc}`).join('\n')}


class UserVariable:
    """Set by users."""

${USER_VARIABLES.map((entry) => `    ${screaming(entry.name)} = "${entry.variable}"  # ${entry.doc}`).join('\n')}


class Category:
    """What memory holds."""

${CATEGORIES.map((entry) => `    ${screaming(entry.name)} = ${entry.number}  # ${entry.doc}`).join('\n')}


class PhaseMark:
    """Marks that a process sets by itself."""

${PHASE_MARKS.map((entry) => `    ${screaming(entry.name)} = "${entry.text}"  # ${entry.doc}`).join('\n')}


class AdapterOptions(ctypes.Structure):
    _fields_ = [
${options.join('\n')}
    ]


GAUGES = (
${GAUGES.map((gauge) => `    "${gauge.name}",  # ${gauge.doc}`).join('\n')}
)


class Gauges(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in GAUGES] + [("reserved_for_later", ctypes.c_uint64 * ${GAUGE_WORDS - GAUGES.length})]


class BadShape(ValueError):
    """A JSON value is not what the table says."""


class Shape:
    """A JSON object with known fields."""

    __slots__ = ()
    FIELDS = ()  # (attribute, key, check, optional)

    @classmethod
    def read(cls, data):
        """BadShape unless every field is there and right. Other keys are passed over."""
        if not isinstance(data, dict):
            raise BadShape(f"{cls.__name__} is no object")
        values = {}
        for attribute, key, check, optional in cls.FIELDS:
            value = data.get(key)
            if value is None and optional:
                values[attribute] = None
            else:
                values[attribute] = check(f"{cls.__name__}.{key}", value)
        return cls(**values)

    def write(self):
        """For json.dump."""
        return {key: _plain(getattr(self, attribute)) for attribute, key, _, _ in self.FIELDS}


def _plain(value):
    if isinstance(value, Shape):
        return value.write()
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text(where, value):
    if not isinstance(value, str):
        raise BadShape(f"{where} is no text")
    return value


def _number(where, value):
    if not _is_number(value):
        raise BadShape(f"{where} is no number")
    return value


def _whole(where, value):
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadShape(f"{where} is no whole number")
    return value


def _flag(where, value):
    if not isinstance(value, bool):
        raise BadShape(f"{where} is neither true nor false")
    return value


def _numbers(where, value):
    if not isinstance(value, list) or not all(_is_number(entry) for entry in value):
        raise BadShape(f"{where} is no list of numbers")
    return value


def _choice(*words):
    def check(where, value):
        if value not in words:
            raise BadShape(f"{where} is none of {', '.join(words)}")
        return value

    return check


def _object(shape):
    return lambda where, value: shape.read(value)


def _list(shape):
    def check(where, value):
        if not isinstance(value, list):
            raise BadShape(f"{where} is no list")
        return [shape.read(entry) for entry in value]

    return check


${SHAPES.map(shapeClass).join('\n\n')}
`;
}

/** An attribute's name: as Python writes it, and no keyword. */
function attribute(name: string): string {
  return RESERVED.has(name) ? `${snake(name)}_` : snake(name);
}

function shapeClass(shape: Shape): string {
  const rows = shape.fields.map(
    (field) =>
      `        ("${attribute(field.name)}", "${field.name}", ${check(field.type)}, ${field.optional ? 'True' : 'False'}),  # ${field.doc}`,
  );
  const required = shape.fields.filter((field) => !field.optional).map((field) => attribute(field.name));
  const optional = shape.fields.filter((field) => field.optional).map((field) => `${attribute(field.name)}=None`);
  const all = shape.fields.map((field) => attribute(field.name));
  return `class ${shape.name}(Shape):
    """${shape.doc}"""

    __slots__ = (${all.map((name) => `"${name}"`).join(', ')}${all.length === 1 ? ',' : ''})
${shape.file ? `    FILE = "${shape.file}"  # behind the process id\n` : ''}    FIELDS = (
${rows.join('\n')}
    )

    def __init__(self, *, ${[...required, ...optional].join(', ')}):
${all.map((name) => `        self.${name} = ${name}`).join('\n')}
`;
}

function check(type: ShapeType): string {
  if (typeof type === 'string') return `_${type}`;
  if ('object' in type) return `_object(${type.object})`;
  if ('list' in type) return `_list(${type.list})`;
  return `_choice(${type.choice.map((word) => JSON.stringify(word)).join(', ')})`;
}

/** python/weir_gpu/variables.py: what must be known before the package can be imported. */
export function pythonVariablesFile(): string {
  const named = (name: string) => CHILD_VARIABLES.find((entry) => entry.name === name)?.variable;
  const ofUser = (name: string) => USER_VARIABLES.find((entry) => entry.name === name)?.variable;
  return `"""Variables that decide whether the package is imported at all.

Generated from abi/ by \`npm run build\`; not committed. Edit the table, not this file."""

ALLOCATOR = "${named('allocator')}"
REQUIRED = "${named('required')}"
ENABLE = "${ofUser('enable')}"
ENABLE_REQUIRED = "${ofUser('required')}"
OWN_EXIT_CODE = ${OWN_EXIT_CODE}
`;
}
