import mime from 'mime';

/** The type of a file by the ending of its name; undefined: the ending says nothing. */
export function mediaTypeOf(path: string): string | undefined {
  return mime.getType(path) ?? undefined;
}
