/** Maximum of the texts of one result together, and minimum for the errors when both are too long, characters. */
export const OUTPUT_CHARACTERS = 30_000;
const ERRORS_LEAST = 10_000;
/** Room for the line that says how much was cut. */
const MARK_ROOM = 60;

export interface Output {
  readonly stdout: string;
  readonly stderr: string;
  readonly truncated: boolean;
}

/**
 * What a command has written, valid in every store: no NUL, no lone surrogate, and both texts together not too long.
 */
export function boundedOutput(stdout: string, stderr: string): Output {
  const errorsMax = Math.max(ERRORS_LEAST, OUTPUT_CHARACTERS - stdout.length);
  const errors = cut(stderr, errorsMax);
  const out = cut(stdout, OUTPUT_CHARACTERS - errors.length);
  return {
    stdout: storable(out),
    stderr: storable(errors),
    truncated: stdout.length > out.length || stderr.length > errors.length,
  };
}

/** The start and the end of a text that is too long, with a line between that says how much is missing. */
export function cut(text: string, charactersMax: number): string {
  if (text.length <= charactersMax) return text;
  const kept = charactersMax - MARK_ROOM;
  const tail = Math.floor(kept / 3);
  const missing = text.length - kept;
  return `${text.slice(0, kept - tail)}\n[… ${missing} characters were cut out here …]\n${text.slice(-tail)}`;
}

/** No store holds these two. */
export function storable(text: string): string {
  return text.toWellFormed().replaceAll('\u0000', '\ufffd');
}

/** What is kept of an output, its beginning and its end, bytes; more than enough for what the model is shown. */
export const HEAD_BYTES = 262_144;
export const TAIL_BYTES = 131_072;

/** The beginning and the end of an output of so many bytes, with a line between that says how much is missing. */
export function keptText(head: Uint8Array, tail: Uint8Array, bytes: number): string {
  const missing = bytes - head.length - tail.length;
  const decoder = new TextDecoder();
  if (missing <= 0) return decoder.decode(Buffer.concat([head, tail]));
  return `${decoder.decode(head)}\n[… ${missing} bytes were cut out here …]\n${decoder.decode(tail)}`;
}
