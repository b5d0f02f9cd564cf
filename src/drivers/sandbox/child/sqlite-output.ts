export type Value = string | number | bigint | null | Uint8Array;

const MODES = ['list', 'csv', 'tabs', 'json', 'line', 'column', 'markdown'] as const;
type Mode = (typeof MODES)[number];

export interface Format {
  mode: Mode;
  isHeaded: boolean;
  /** Null: that of the mode. */
  separator: string | null;
  /** What is shown of NULL. */
  nothing: string;
}

export function isMode(text: string): text is Mode {
  return MODES.some((mode) => mode === text);
}

/** The rows of a result as `sqlite3` shows them. */
export function formatted(columns: readonly string[], rows: readonly (readonly Value[])[], format: Format): string {
  if (rows.length === 0) return '';
  if (format.mode === 'json') return `[${rows.map((row) => jsonOf(columns, row)).join(',\n')}]\n`;
  const cells = rows.map((row) => row.map((value) => textOf(value, format.nothing)));
  if (format.mode === 'line') return linesOf(columns, cells);
  if (format.mode === 'column' || format.mode === 'markdown') return gridOf(columns, cells, format);
  const separator = format.separator ?? { csv: ',', tabs: '\t', list: '|' }[format.mode];
  const written = format.mode === 'csv' ? quoted : (text: string) => text;
  const all = format.isHeaded ? [columns, ...cells] : cells;
  return all.map((row) => `${row.map(written).join(separator)}\n`).join('');
}

function textOf(value: Value, nothing: string): string {
  if (value === null) return nothing;
  return value instanceof Uint8Array ? Buffer.from(value).toString('utf8') : String(value);
}

function quoted(text: string): string {
  return /[",'\s]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function jsonOf(columns: readonly string[], row: readonly Value[]): string {
  const values = row.map((value) =>
    JSON.stringify(typeof value === 'number' || value === null ? value : textOf(value, '')),
  );
  return `{${columns.map((name, at) => `${JSON.stringify(name)}:${values[at]}`).join(',')}}`;
}

function linesOf(columns: readonly string[], cells: readonly (readonly string[])[]): string {
  const width = Math.max(...columns.map(({ length }) => length));
  const blocks = cells.map((row) =>
    row.map((text, at) => `${(columns[at] ?? '').padStart(width)} = ${text}\n`).join(''),
  );
  return blocks.join('\n');
}

function gridOf(columns: readonly string[], cells: readonly (readonly string[])[], format: Format): string {
  const widths = columns.map((name, at) =>
    cells.reduce((most, row) => Math.max(most, row[at]?.length ?? 0), name.length),
  );
  const padded = (row: readonly string[]) => row.map((text, at) => text.padEnd(widths[at] ?? 0));
  const rule = widths.map((width) => '-'.repeat(width));
  if (format.mode === 'markdown') {
    return [columns, rule, ...cells].map((row) => `| ${padded(row).join(' | ')} |\n`).join('');
  }
  const head = format.isHeaded ? [columns, rule] : [];
  return [...head, ...cells].map((row) => `${padded(row).join('  ').trimEnd()}\n`).join('');
}
