import { RE2JS } from 're2js';
import { patternSize } from '../kernel/linear-pattern.ts';

/** Characters of a line that are searched: what follows in a longer one is not found. */
export const LINE_CHARACTERS_MAX = 4_096;
/** Instructions of a pattern. Together with the length of a line, this bounds the time for one line. */
const SIZE_MAX = 1_000;

/** A search that cannot be made. */
export class SearchError extends Error {
  readonly code = 'limit_exceeded';
}

/** Whether a line matches. */
export type LinePattern = (line: string) => boolean;

/**
 * A regular expression for lines. It comes from a model and runs in the one thread that serves all clients, so it is
 * matched in time linear in the text.
 * @throws SearchError
 */
export function linePattern(pattern: string, ignoreCase: boolean): LinePattern {
  const expression = compiled(pattern, ignoreCase ? RE2JS.CASE_INSENSITIVE : 0);
  return (line) => expression.test(line.length > LINE_CHARACTERS_MAX ? line.slice(0, LINE_CHARACTERS_MAX) : line);
}

/**
 * A test for paths: `*` and `?` within a name, `**` over directories, `[…]` and `{a,b}`. The whole path has to match.
 * @throws SearchError
 */
export function globPattern(glob: string): (path: string) => boolean {
  return linePattern(`^(?:${globExpression(glob.replace(/^\.?\//, ''))})$`, false);
}

function globExpression(glob: string): string {
  let expression = '';
  let open = 0;
  for (let at = 0; at < glob.length; at++) {
    const rest = glob.slice(at, at + 3);
    const character = glob.charAt(at);
    if (rest === '**/') [expression, at] = [`${expression}(?:[^/]+/)*`, at + 2];
    else if (rest.startsWith('**')) [expression, at] = [`${expression}.*`, at + 1];
    else if (character === '*') expression += '[^/]*';
    else if (character === '?') expression += '[^/]';
    else if (character === '{') [expression, open] = [`${expression}(?:`, open + 1];
    else if (character === '}' && open > 0) [expression, open] = [`${expression})`, open - 1];
    else if (character === ',' && open > 0) expression += '|';
    else if (character === '[' && classEnd(glob, at) > 0) {
      const end = classEnd(glob, at);
      expression += characterClass(glob.slice(at + 1, end));
      at = end;
    } else expression += RE2JS.quote(character);
  }
  return expression + ')'.repeat(open);
}

/** Where a character class ends; 0: it does not. */
function classEnd(glob: string, at: number): number {
  const end = glob.indexOf(']', at + 2);
  return end < 0 || glob.slice(at, end).includes('/') ? 0 : end;
}

function characterClass(body: string): string {
  const isNegated = body.startsWith('!') || body.startsWith('^');
  const members = body.slice(isNegated ? 1 : 0).replaceAll(/[\\[\]^]/g, String.raw`\$&`);
  return `[${isNegated ? '^/' : ''}${members}]`;
}

function compiled(pattern: string, flags: number): RE2JS {
  const tooLarge = new SearchError('the pattern is too large; make it simpler');
  if (patternSize(pattern) > SIZE_MAX) throw tooLarge;
  let expression: RE2JS;
  try {
    expression = RE2JS.compile(pattern, flags);
  } catch (error) {
    const reason = error instanceof Error ? error.message : 'it is malformed';
    throw new SearchError(
      `the pattern cannot be used: ${reason.slice(0, 200)}; there is no look-around and no back-reference`,
    );
  }
  if (expression.programSize() > 2 * SIZE_MAX) throw tooLarge;
  return expression;
}
