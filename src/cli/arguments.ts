import { parseArgs } from 'node:util';
import { misuse } from '../lib/start-error.ts';

type Options = NonNullable<NonNullable<Parameters<typeof parseArgs>[0]>['options']>;

/**
 * The options and words of a command line. An option that takes a value takes the word after it, also one that begins with a
 * dash, as one in 64 public keys does. Only the name of another option is not its value.
 * @throws StartError for an unknown option
 */
export function readArguments<const O extends Options>(
  args: readonly string[],
  options: O,
): { readonly values: ReturnType<typeof parseArgs<{ options: O }>>['values']; readonly words: readonly string[] } {
  try {
    const { values, positionals } = parseArgs<{ args: string[]; options: O; allowPositionals: true }>({
      args: joined(args, options),
      options,
      allowPositionals: true,
    });
    return { values, words: positionals };
  } catch (cause) {
    const what = cause instanceof Error ? cause.message : String(cause);
    return misuse(`${what}; agent-host help shows what there is`, cause);
  }
}

/** With each value that begins with a dash joined to its option: `parseArgs` calls it ambiguous otherwise. */
function joined(args: readonly string[], options: Options): string[] {
  const found: string[] = [];
  for (let at = 0; at < args.length; at++) {
    const [word = '', next] = args.slice(at, at + 2);
    if (word === '--') return [...found, ...args.slice(at)];
    const takesNext = next?.startsWith('-') === true && takesValue(word, options) && !isOption(next, options);
    found.push(takesNext ? `${word}${word.startsWith('--') ? '=' : ''}${next}` : word);
    if (takesNext) at++;
  }
  return found;
}

function takesValue(word: string, options: Options): boolean {
  return optionOf(word, options)?.type === 'string';
}

function isOption(word: string, options: Options): boolean {
  const [name = ''] = word.split('=');
  return word === '--' || optionOf(name, options) !== undefined;
}

/** The option that a word is the long or the short name of. */
function optionOf(word: string, options: Options): Options[string] | undefined {
  if (word.startsWith('--')) return Object.hasOwn(options, word.slice(2)) ? options[word.slice(2)] : undefined;
  return Object.values(options).find(({ short }) => short !== undefined && word === `-${short}`);
}

/** A number of an option. @throws StartError */
export function numberOf(name: string, text: string, { least = 0, whole = false } = {}): number {
  const value = Number(text);
  if (text.trim() !== '' && Number.isFinite(value) && value >= least && (!whole || Number.isInteger(value)))
    return value;
  return misuse(`--${name} must be a ${whole ? 'whole ' : ''}number of ${least} or more`);
}
