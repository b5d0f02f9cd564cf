/** A piece of a text that somebody else wrote. It is shown as text, whatever it says. */
export type Piece =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'link'; readonly text: string; readonly href: string }
  /** A character that is invisible or turns the direction of what follows. */
  | { readonly kind: 'mark'; readonly text: string; readonly name: string };

/** Characters that make a text look like another one: directions, and what has no width. */
const MARKS: ReadonlyMap<string, string> = new Map([
  ['\u200B', 'zero width space'],
  ['\u200E', 'left-to-right mark'],
  ['\u200F', 'right-to-left mark'],
  ['\u061C', 'Arabic letter mark'],
  ['\u202A', 'left-to-right embedding'],
  ['\u202B', 'right-to-left embedding'],
  ['\u202C', 'pop directional formatting'],
  ['\u202D', 'left-to-right override'],
  ['\u202E', 'right-to-left override'],
  ['\u2066', 'left-to-right isolate'],
  ['\u2067', 'right-to-left isolate'],
  ['\u2068', 'first strong isolate'],
  ['\u2069', 'pop directional isolate'],
  ['\uFEFF', 'byte order mark'],
]);
const MARK_SET = [...MARKS.keys()].join('');
/** Control characters but tab, line feed and carriage return. */
const CONTROL = String.raw`\u0000-\u0008\u000B\u000C\u000E-\u001F\u007F-\u009F`;
const URL_END = String.raw`\s<>"'\u0060\\^{}|`;
const TOKEN = new RegExp(
  `(?<mark>[${MARK_SET}${CONTROL}])|(?<link>https?://[^${URL_END}${MARK_SET}${CONTROL}]{1,2000})`,
  'gu',
);

/** A link or a mark is an element of its own, and costs a page as much as so many characters. */
const ELEMENT_UNITS = 40;

/** Splits a text into what is shown as it is, links to http(s), and marks in place of characters that deceive. */
export function piecesOf(text: string): readonly Piece[] {
  return beginningPieces(text, Number.POSITIVE_INFINITY).pieces;
}

/**
 * The pieces of the beginning of a text, and how much of it they are.
 * @param limit UTF-16 units, of which a text of nothing but links or marks has fewer
 */
export function beginningPieces(
  text: string,
  limit: number,
): { readonly pieces: readonly Piece[]; readonly length: number } {
  const pieces: Piece[] = [];
  const start = beginning(text, limit);
  let from = 0;
  let end = start.length;
  let left = limit;
  for (const match of start.matchAll(TOKEN)) {
    const { mark, link } = match.groups ?? {};
    const href = link === undefined ? null : hrefOf(link);
    const length = mark?.length ?? href?.text.length ?? 0;
    if (length === 0) continue;
    const units = match.index - from + Math.max(ELEMENT_UNITS, length);
    if (units > left) {
      end = match.index;
      break;
    }
    left -= units;
    if (match.index > from) pieces.push({ kind: 'text', text: start.slice(from, match.index) });
    if (mark !== undefined)
      pieces.push({ kind: 'mark', text: codeOf(mark), name: MARKS.get(mark) ?? 'control character' });
    else if (href !== null) pieces.push({ kind: 'link', ...href });
    from = match.index + length;
  }
  const rest = beginning(start.slice(from, end), left);
  if (rest !== '') pieces.push({ kind: 'text', text: rest });
  return { pieces, length: from + rest.length };
}

/** What ends a sentence is no part of the address in it. */
function hrefOf(given: string): { readonly text: string; readonly href: string } | null {
  const text = given.replace(/[.,;:!?)\]]+$/, '');
  if (!URL.canParse(text)) return null;
  const url = new URL(text);
  return url.protocol === 'https:' || url.protocol === 'http:' ? { text, href: url.href } : null;
}

function codeOf(character: string): string {
  return `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}`;
}

/**
 * The beginning of a text, cut between two code points.
 * @param limit UTF-16 units
 */
export function beginning(text: string, limit: number): string {
  if (text.length <= limit) return text;
  const last = text.charCodeAt(limit - 1);
  return text.slice(0, last >= 0xd8_00 && last <= 0xdb_ff ? limit - 1 : limit);
}

/** A text with its marks made visible, for where nothing but text can be. */
export function marked(text: string): string {
  return piecesOf(text)
    .map((piece) => (piece.kind === 'mark' ? `⟦${piece.text}⟧` : piece.text))
    .join('');
}

/** A text as one line for lists: white space together, marks made visible, and cut. */
export function oneLine(text: string, limit: number): string {
  const start = beginning(text, limit * 4)
    .replaceAll(/\s+/gu, ' ')
    .trim();
  return `${marked(beginning(start, limit))}${start.length > limit || text.length > limit * 4 ? '…' : ''}`;
}
