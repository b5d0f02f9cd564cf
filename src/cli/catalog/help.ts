import { CALLER_COMMANDS } from './callers.ts';
import type { Entry, Option } from './entry.ts';
import { OPERATOR_COMMANDS } from './operators.ts';

const ALL: Readonly<Record<string, Entry>> = { ...OPERATOR_COMMANDS, ...CALLER_COMMANDS };
const COLUMN = 42;
const WIDTH = 118;

/** Every command by its name of one or two words. */
export type CommandName = keyof typeof OPERATOR_COMMANDS | keyof typeof CALLER_COMMANDS;

/** The names, in the order in which help shows them. */
export function commandNames(): readonly string[] {
  return Object.keys(ALL);
}

export function entryOf(name: string): Entry | undefined {
  return Object.hasOwn(ALL, name) ? ALL[name] : undefined;
}

/** The commands that a first word begins, `sessions` for one. */
export function namesUnder(first: string): readonly string[] {
  return commandNames().filter((name) => name.startsWith(`${first} `));
}

/** All commands, one line each. */
export function overview(): string {
  return [
    'For those who run a Host:',
    '',
    ...Object.keys(OPERATOR_COMMANDS).map(lineOf),
    '',
    'For those who call one, with the context that init or login makes (AGENT_HOST_CONTEXT names another file of contexts):',
    '',
    ...Object.keys(CALLER_COMMANDS).map(lineOf),
    '',
    'agent-host help <command> shows its options and an example. Exit codes: 0 done, 1 refused or failed, 2 misused,',
    '3 no Host answers, 4 not signed in, 130 interrupted.',
    '',
  ].join('\n');
}

/** The commands of one first word. */
export function overviewOf(first: string): string {
  return namesUnder(first)
    .map((name) => `${lineOf(name)}\n`)
    .join('');
}

/** One command with its options and examples. */
export function helpOf(name: string): string {
  const { words, summary, options, examples } = entryOf(name) ?? { words: '', summary: '', options: {}, examples: [] };
  const shown = Object.entries(options).map(([option, one]) => row(`  ${writtenAs(option, one)}`, one.what));
  return [
    `agent-host ${[name, words].filter((part) => part !== '').join(' ')}${shown.length > 0 ? ' [options]' : ''}`,
    `  ${summary}`,
    ...(shown.length > 0 ? ['', ...shown] : []),
    '',
    `Example${examples.length > 1 ? 's' : ''}:`,
    ...examples.map((example) => `  ${example}`),
    '',
  ].join('\n');
}

function writtenAs(name: string, { short, value }: Option): string {
  return [`${short === undefined ? '' : `-${short}, `}--${name}`, value].filter((part) => part !== undefined).join(' ');
}

function lineOf(name: string): string {
  const { words, summary } = ALL[name] ?? { words: '', summary: '' };
  return row(`agent-host ${name}${words === '' ? '' : ` ${words}`}`, summary);
}

/** Two columns; what is too long for its column goes to lines below. */
function row(left: string, right: string): string {
  const lines: string[] = [''];
  for (const word of right.split(' ')) {
    const last = lines.at(-1) ?? '';
    if (last !== '' && last.length + word.length + 1 > WIDTH - COLUMN) lines.push(word);
    else lines[lines.length - 1] = last === '' ? word : `${last} ${word}`;
  }
  const indented = lines.join(`\n${' '.repeat(COLUMN)}`);
  return left.length >= COLUMN ? `${left}\n${' '.repeat(COLUMN)}${indented}` : `${left.padEnd(COLUMN)}${indented}`;
}
