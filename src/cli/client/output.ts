import { plainLine, safeJson, styled } from '../terminal.ts';

const WIDTH_MAX = 80;

/** Rows under a heading, columns as wide as needed; what came from elsewhere is neutral. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const cells = rows.map((row) => row.map(plainLine));
  const widths = head.map((name, column) =>
    Math.max(name.length, ...cells.map((row) => Math.min(WIDTH_MAX, (row[column] ?? '').length))),
  );
  const line = (row: readonly string[]): string =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd();
  return `${[styled('bold', line(head)), ...cells.map(line)].join('\n')}\n`;
}

/** Rows as JSON, one a line, or as a text for a person. */
export function print(rows: readonly unknown[], asJson: boolean | undefined, asText: () => string): number {
  const json = (): string => rows.map((row) => `${safeJson(row)}\n`).join('');
  process.stdout.write(asJson === true ? json() : asText());
  return 0;
}

/** The first of a list that is read page by page. */
export async function first<T>(all: AsyncIterable<T>, count: number): Promise<T[]> {
  const found: T[] = [];
  if (count === 0) return found;
  for await (const one of all) if (found.push(one) === count) break;
  return found;
}

const STEPS = '▁▂▃▄▅▆▇█';

/** Numbers as a line of bars, the largest of full height; one that is not 0 is never invisible. */
export function sparkline(values: readonly number[]): string {
  const most = Math.max(...values, 0);
  return values
    .map((value) => {
      if (value <= 0 || most === 0) return ' ';
      return STEPS[Math.min(STEPS.length - 1, Math.floor((value / most) * STEPS.length))];
    })
    .join('');
}

const UNITS = ['B', 'kB', 'MB', 'GB', 'TB'];

/** Bytes for a person: `1.2 MB`. */
export function sizeText(bytes: number): string {
  const unit = Math.min(UNITS.length - 1, bytes < 1 ? 0 : Math.floor(Math.log10(bytes) / 3));
  return unit === 0 ? `${bytes} B` : `${(bytes / 1_000 ** unit).toFixed(1)} ${UNITS[unit]}`;
}
