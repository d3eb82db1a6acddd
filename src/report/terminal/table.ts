// An aligned table in plain text: a header, rows of cells, numbers to the right.

export interface Column {
  readonly title: string;
  readonly align: 'left' | 'right';
  /** If the table is too wide, the column with the lowest number is left out first; undefined: it always stays. */
  readonly worth?: number | undefined;
}

/** The columns that fit in `width`, by their index; those without a `worth` are always among them. */
export function columnsWithin(columns: readonly Column[], rows: readonly (readonly string[])[], width: number): number[] {
  let kept = columns.map((_, index) => index).filter((index) => rows.some((row) => (row[index] ?? '') !== ''));
  while (tableWidth(columns, rows, kept) > width) {
    const [least] = kept.filter((index) => columns[index]!.worth !== undefined).sort((a, b) => columns[a]!.worth! - columns[b]!.worth!);
    if (least === undefined) break;
    kept = kept.filter((index) => index !== least);
  }
  return kept;
}

/** The width of a table of these columns. */
export function tableWidth(columns: readonly Column[], rows: readonly (readonly string[])[], shown: readonly number[]): number {
  const widthOf = (index: number) => Math.max(columns[index]!.title.length, ...rows.map((row) => (row[index] ?? '').length));
  return shown.reduce((sum, index) => sum + widthOf(index), GAP.length * (shown.length - 1));
}

/** Between two columns. */
export const GAP = '  ';

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
      .join(GAP)
      .trimEnd();
  return [line(columns.map((column) => column.title)), ...rows.map(line)];
}
