export interface ChangedLine {
  readonly sign: '+' | '-' | ' ';
  readonly text: string;
}

/** Lines shown of a change; the whole text is among the records. */
const LINES_MAX = 400;
const AROUND = 3;

/**
 * What differs between two texts, with a few lines around it: lines that begin and end both are left out. `left` counts
 * lines that are not shown because there are too many.
 */
export function changedLines(
  before: string,
  after: string,
): { readonly lines: readonly ChangedLine[]; readonly left: number } {
  const old = before === '' ? [] : before.split('\n');
  const now = after === '' ? [] : after.split('\n');
  const shorter = Math.min(old.length, now.length);
  let start = 0;
  while (start < shorter && old[start] === now[start]) start++;
  let end = 0;
  while (end < shorter - start && old.at(-1 - end) === now.at(-1 - end)) end++;
  const signed = (sign: ChangedLine['sign'], texts: readonly string[]) => texts.map((text) => ({ sign, text }));
  const all = [
    ...signed(' ', now.slice(Math.max(0, start - AROUND), start)),
    ...signed('-', old.slice(start, old.length - end)),
    ...signed('+', now.slice(start, now.length - end)),
    ...signed(' ', now.slice(now.length - end, now.length - end + AROUND)),
  ];
  return { lines: all.slice(0, LINES_MAX), left: Math.max(0, all.length - LINES_MAX) };
}
