import { parseArgs } from 'node:util';
import { misuse } from '../lib/start-error.ts';

type Options = NonNullable<NonNullable<Parameters<typeof parseArgs>[0]>['options']>;

/** The options and words of a command line. @throws StartError for an unknown option */
export function readArguments<const O extends Options>(
  args: readonly string[],
  options: O,
): { readonly values: ReturnType<typeof parseArgs<{ options: O }>>['values']; readonly words: readonly string[] } {
  try {
    const { values, positionals } = parseArgs<{ args: string[]; options: O; allowPositionals: true }>({
      args: [...args],
      options,
      allowPositionals: true,
    });
    return { values, words: positionals };
  } catch (cause) {
    const what = cause instanceof Error ? cause.message : String(cause);
    return misuse(`${what}; agent-host help shows what there is`, cause);
  }
}

/** A number of an option. @throws StartError */
export function numberOf(name: string, text: string, { least = 0, whole = false } = {}): number {
  const value = Number(text);
  if (text.trim() !== '' && Number.isFinite(value) && value >= least && (!whole || Number.isInteger(value)))
    return value;
  return misuse(`--${name} must be a ${whole ? 'whole ' : ''}number of ${least} or more`);
}
