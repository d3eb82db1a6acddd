// A table that can be sorted by its column heads, with mouse or keyboard.
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';

export interface Column<Row> {
  readonly title: string;
  readonly align?: 'right';
  readonly help?: string;
  /** For the stylesheet. */
  readonly name?: string;
  /** The value to sort by; undefined: the column cannot be sorted. */
  value?(row: Row): number | string;
  cell(row: Row): ComponentChildren;
}

interface Props<Row> {
  readonly label: string;
  readonly columns: readonly Column<Row>[];
  readonly rows: readonly Row[];
  keyOf(row: Row): string | number;
  rowClass?(row: Row): string;
  onPick?(row: Row): void;
}

export function Table<Row>({ label, columns, rows, keyOf, rowClass, onPick }: Props<Row>) {
  const [order, setOrder] = useState<{ column: number; isDown: boolean } | undefined>(undefined);
  const sorted = order ? sortRows(rows, columns[order.column]!, order.isDown) : rows;
  const sortBy = (column: number) => {
    if (order?.column !== column) setOrder({ column, isDown: true });
    else setOrder(order.isDown ? { column, isDown: false } : undefined);
  };
  return (
    <table aria-label={label}>
      <thead>
        <tr>
          {columns.map((column, index) => {
            const direction = order?.column === index ? (order.isDown ? 'descending' : 'ascending') : 'none';
            return (
              <th
                key={column.title}
                class={`${column.align ?? ''} ${column.name ? `column-${column.name}` : ''}`}
                aria-sort={column.value ? direction : undefined}
                title={column.help}
              >
                {column.value ? (
                  <button type="button" class="sort" onClick={() => sortBy(index)}>
                    {column.title}
                    <span class="arrow" aria-hidden="true">
                      {direction === 'descending' ? '▼' : direction === 'ascending' ? '▲' : ''}
                    </span>
                  </button>
                ) : (
                  column.title
                )}
              </th>
            );
          })}
        </tr>
      </thead>
      <tbody>
        {sorted.map((row) => (
          <tr
            key={keyOf(row)}
            class={`${rowClass?.(row) ?? ''}${onPick ? ' pick' : ''}`}
            tabIndex={onPick ? 0 : undefined}
            onClick={onPick ? () => onPick(row) : undefined}
            onKeyDown={(event) => {
              if (event.key === 'Enter' || event.key === ' ') {
                event.preventDefault();
                onPick?.(row);
              }
            }}
          >
            {columns.map((column) => (
              <td key={column.title} class={column.align}>
                {column.cell(row)}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function sortRows<Row>(rows: readonly Row[], column: Column<Row>, isDown: boolean): Row[] {
  const value = column.value!;
  const sign = isDown ? -1 : 1;
  return [...rows].sort((a, b) => {
    const left = value(a);
    const right = value(b);
    return sign * (typeof left === 'string' ? left.localeCompare(String(right)) : left - Number(right));
  });
}
