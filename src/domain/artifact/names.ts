import { z } from 'zod';

/**
 * Characters that could end a header line or act on a terminal: control characters and line separators. Format characters
 * stay, because scripts and emoji need them.
 */
const UNPRINTABLE = /[\p{Cc}\p{Zl}\p{Zp}]/u;

const SAFE = 'must not contain a control character, a line separator or a lone surrogate';

function isPrintable(value: string): boolean {
  return value.isWellFormed() && !UNPRINTABLE.test(value);
}

/** Name of an artifact: 1 to 255 characters, no slash, backslash or control character. */
export const artifactName = z
  .string()
  .min(1)
  .max(255)
  .refine((name) => !/[/\\]/.test(name), 'must not contain a slash or a backslash')
  .refine((name) => name !== '.' && name !== '..', 'must not be a relative directory')
  .refine(isPrintable, SAFE);

/** Longest path of a file in a folder, characters. */
const PATH_MAX = 1_024;

/** Path of a file in a folder: segments split by `/`, none empty or a relative directory. */
export const treePath = z
  .string()
  .min(1)
  .max(PATH_MAX)
  .refine(
    (path) => path.split('/').every((segment) => segment !== '' && segment !== '.' && segment !== '..'),
    'must be segments split by single slashes, none of them "." or ".."',
  )
  .refine((path) => !path.includes('\\'), 'must not contain a backslash')
  .refine(isPrintable, SAFE);

/** A media type as a header may carry it: `type/subtype` and parameters, visible ASCII and spaces, 255 at most. */
const MEDIA_TYPE =
  /^[A-Za-z0-9!#$%&'*+.^_`|~-]+\/[A-Za-z0-9!#$%&'*+.^_`|~-]+(?: *; *[A-Za-z0-9!#$%&'*+.^_`|~-]+=(?:[A-Za-z0-9!#$%&'*+.^_`|~-]+|"[\x20\x21\x23-\x5b\x5d-\x7e]*"))*$/;

export function isMediaType(text: string): boolean {
  return text.length <= 255 && MEDIA_TYPE.test(text);
}

/** The type of a file of which nothing is known. */
export const UNKNOWN_MEDIA_TYPE = 'application/octet-stream';
