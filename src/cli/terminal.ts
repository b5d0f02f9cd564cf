import { styleText } from 'node:util';

/**
 * What models, tools and people wrote may hold the codes that a terminal obeys: they move the cursor over what was shown,
 * set the clipboard or the title, and turn the direction of a text around. Shown as signs, they do nothing.
 */
const OBEYED =
  // oxlint-disable-next-line eslint/no-control-regex -- these are what is looked for
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;
/** JSON may hold them as escapes, which mean the same. Lines and tabs stay where the JSON is laid out with them. */
const CONTROL_PICTURES = 0x2400;
const DELETE = 0x7f;

/** Whether a text holds what a terminal would obey. */
export function isObeyed(text: string): boolean {
  return text.search(OBEYED) >= 0;
}

/** A text for a terminal, with its lines and tabs. */
export function plainText(text: string): string {
  return text.replaceAll('\r\n', '\n').replaceAll(OBEYED, shown);
}

/** A text for one line of a terminal. */
export function plainLine(text: string): string {
  return plainText(text).replaceAll(/[\t\n]/g, ' ');
}

function shown(sign: string): string {
  const code = sign.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(CONTROL_PICTURES + code);
  return code === DELETE ? '\u2421' : escaped(sign);
}

function escaped(sign: string): string {
  return `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

/** A value as JSON that a terminal shows and does not obey; a program reads the same value. */
export function safeJson(value: unknown, indent?: number): string {
  return escapedJson(JSON.stringify(value, null, indent) ?? 'null');
}

/** A text that is JSON, with what a terminal would obey as escapes. */
export function escapedJson(text: string): string {
  return text.replaceAll(OBEYED, (sign) => (sign === '\r' ? sign : escaped(sign)));
}

type Style = Parameters<typeof styleText>[0];

/** With colour where that is a terminal and no one has switched colours off (NO_COLOR, NODE_DISABLE_COLORS, TERM=dumb). */
export function styled(style: Style, text: string, stream: NodeJS.WriteStream = process.stdout): string {
  return styleText(style, text, { stream });
}
