// Buffers as comma-separated text in minimalloc's columns, which idealloc and others use too.
// Columns in any order: id, lower, upper (or end, inclusive), size; optional: alignment, offset (fixed), gaps.
import { InputError } from '../../base/errors.ts';
import { type Buffer, checkBuffers, normalizeSpans, type Span, withoutGaps } from '../offsets/buffers.ts';

const COLUMN_NAMES: Readonly<Record<string, string>> = {
  id: 'id',
  buffer: 'id',
  buffer_id: 'id',
  lower: 'lower',
  start: 'lower',
  begin: 'lower',
  upper: 'upper',
  end: 'end',
  size: 'size',
  alignment: 'alignment',
  offset: 'offset',
  gaps: 'gaps',
  hint: 'hint',
};

const MAX_BUFFERS = 5_000_000;

/** Whether the text begins with the header of a list of buffers. */
export function looksLikeBufferCsv(text: string): boolean {
  const header =
    text
      .slice(0, 1000)
      .replace(/^\ufeff/, '')
      .split(/\r?\n/, 1)[0] ?? '';
  const columns = header.split(',').map((name) => COLUMN_NAMES[name.trim().toLowerCase()]);
  return columns.includes('size') && columns.includes('lower') && (columns.includes('upper') || columns.includes('end'));
}

export function readBufferCsv(text: string): Buffer[] {
  const lines = text.replace(/^\ufeff/, '').split(/\r?\n/);
  const header = lines[0] ?? '';
  const columns = new Map<string, number>();
  header.split(',').forEach((name, index) => {
    const column = COLUMN_NAMES[name.trim().toLowerCase()];
    if (column !== undefined && !columns.has(column)) columns.set(column, index);
  });
  const need = (name: string) => {
    const index = columns.get(name);
    if (index === undefined)
      throw new InputError(`the first line has no column '${name}'; a list of buffers begins with id,lower,upper,size`);
    return index;
  };
  const sizeAt = need('size');
  const lowerAt = need('lower');
  const upperAt = columns.get('upper') ?? need('end');
  // minimalloc's `end` is the last moment of the buffer. `upper` is the first moment after it.
  const pastEnd = columns.has('upper') ? 0 : 1;
  const idAt = columns.get('id');
  const alignmentAt = columns.get('alignment');
  const offsetAt = columns.get('offset');
  const gapsAt = columns.get('gaps');

  const buffers: Buffer[] = [];
  for (let line = 1; line < lines.length; line++) {
    const row = lines[line]!;
    if (row.trim() === '') continue;
    if (buffers.length >= MAX_BUFFERS) throw new InputError(`the list has more than ${MAX_BUFFERS} buffers; split it`);
    const fields = row.split(',');
    const number = (at: number, what: string) => {
      const field = fields[at]?.trim() ?? '';
      const value = Number(field);
      if (field === '' || !Number.isFinite(value)) throw new InputError(`line ${line + 1}: '${field}' is not a valid ${what}`);
      return value;
    };
    const from = number(lowerAt, 'start time');
    const to = number(upperAt, 'end time') + pastEnd;
    const gaps = gapsAt === undefined ? [] : readGaps(fields[gapsAt] ?? '', line + 1);
    buffers.push({
      id: (idAt === undefined ? '' : (fields[idAt]?.trim() ?? '')) || String(buffers.length),
      size: number(sizeAt, 'size'),
      spans: gaps.length > 0 ? withoutGaps([{ from, to }], gaps) : [{ from, to }],
      alignment: alignmentAt === undefined || !fields[alignmentAt]?.trim() ? 1 : number(alignmentAt, 'alignment'),
      fixedOffset: offsetAt === undefined || !fields[offsetAt]?.trim() ? undefined : number(offsetAt, 'offset'),
    });
  }
  if (buffers.length === 0) throw new InputError('the list has no buffers; add a line for each below the header');
  checkBuffers(buffers);
  return buffers;
}

/**
 * Reads `lo-hi` entries separated by blanks. A gap with a window (`lo-hi@wlo:whi`) frees only part of the bytes;
 * ignoring it is safe.
 */
function readGaps(text: string, line: number): Span[] {
  const gaps: Span[] = [];
  for (const part of text.trim().split(/\s+/)) {
    if (part === '') continue;
    const match = /^(\d+)-(\d+)(@\d+:\d+)?$/.exec(part);
    if (!match) throw new InputError(`line ${line}: '${part}' is not a gap; write it as 10-20`);
    if (match[3] === undefined) gaps.push({ from: Number(match[1]), to: Number(match[2]) });
  }
  return normalizeSpans(gaps);
}
