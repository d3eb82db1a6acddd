// An aligned table in plain text: a header, rows of cells, numbers to the right.

export interface Column {
  readonly title: string;
  readonly align: 'left' | 'right';
}

/** Lines of the table, header first. Columns that are empty in every row are left out. */
export function formatTable(columns: readonly Column[], rows: readonly (readonly string[])[]): string[] {
  const used = columns.map((_, index) => index).filter((index) => rows.some((row) => (row[index] ?? '') !== ''));
  const widths = used.map((index) => Math.max(columns[index]!.title.length, ...rows.map((row) => (row[index] ?? '').length)));
  const line = (cells: readonly string[]) =>
    used
      .map((index, position) => {
        const cell = cells[index] ?? '';
        return columns[index]!.align === 'left' ? cell.padEnd(widths[position]!) : cell.padStart(widths[position]!);
      })
      .join('  ')
      .trimEnd();
  return [line(columns.map((column) => column.title)), ...rows.map(line)];
}
