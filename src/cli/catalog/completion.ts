import { misuse } from '../../lib/start-error.ts';
import type { Option } from './entry.ts';
import { commandNames, entryOf } from './help.ts';

/** `agent-host completion <shell>`: what a shell evaluates. Returns the exit code. */
export function completion(words: readonly string[]): number {
  const [shell = ''] = words;
  const script = { bash, zsh, fish }[shell];
  if (script === undefined) return misuse('name the shell: agent-host completion bash, zsh or fish');
  process.stdout.write(script());
  return 0;
}

const firstWords = (): readonly string[] => [...new Set(commandNames().map((name) => name.split(' ')[0] ?? ''))];
const secondWords = (first: string): readonly string[] =>
  commandNames().flatMap((name) => (name.startsWith(`${first} `) ? [name.slice(first.length + 1)] : []));
const optionsOf = (name: string): readonly string[] =>
  [...Object.keys(entryOf(name)?.options ?? {}), 'help'].map((option) => `--${option}`);

/** Of `<one|other>`: the values that an option has. */
function valuesOf(value: string | undefined): readonly string[] {
  const found = /^<([\w-]+(?:\|[\w-]+)+)>$/.exec(value ?? '');
  return found?.[1]?.split('|') ?? [];
}

/** After a command: its options; elsewhere the words that can follow, else files. */
function bash(): string {
  const groups = firstWords().filter((first) => secondWords(first).length > 0);
  return [
    '_agent_host() {',
    '  local cur=${COMP_WORDS[COMP_CWORD]} first=${COMP_WORDS[1]} name words=""',
    '  COMPREPLY=()',
    '  if [ "$COMP_CWORD" -eq 1 ]; then',
    `    words="${firstWords().join(' ')}"`,
    '  else',
    '    name=$first',
    '    case "$first" in',
    ...groups.flatMap((first) => [
      `      ${first})`,
      `        if [ "$COMP_CWORD" -eq 2 ]; then words="${secondWords(first).join(' ')}"`,
      '        else name="$first ${COMP_WORDS[2]}"; fi ;;',
    ]),
    '    esac',
    '    if [ -z "$words" ]; then',
    '      case "$name" in',
    ...commandNames().map((name) => `        "${name}") words="${wordsAfter(name)}" ;;`),
    '      esac',
    '    fi',
    '  fi',
    '  COMPREPLY=($(compgen -W "$words" -- "$cur"))',
    '}',
    'complete -o default -F _agent_host agent-host',
    '',
  ].join('\n');
}

function wordsAfter(name: string): string {
  return [...optionsOf(name), ...valuesOf(entryOf(name)?.words)].join(' ');
}

function zsh(): string {
  return ['#compdef agent-host', 'autoload -U +X bashcompinit && bashcompinit', bash()].join('\n');
}

const quoted = (text: string): string => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;

function fish(): string {
  const lines = firstWords().map((first) => {
    const what = entryOf(first)?.summary ?? secondWords(first).join(', ');
    return `complete -c agent-host -n __fish_use_subcommand -a ${first} -d ${quoted(what)}`;
  });
  return `${['complete -c agent-host -f', ...lines, ...commandNames().flatMap(fishOf)].join('\n')}\n`;
}

/** Of one command: its second word, the values of its words, its options, and files where it takes one. */
function fishOf(name: string): readonly string[] {
  const [first = '', second] = name.split(' ');
  const { options = {}, summary = '', words = '' } = entryOf(name) ?? {};
  const chosen = `__fish_seen_subcommand_from ${first}`;
  const seen = quoted(second === undefined ? chosen : `${chosen}; and __fish_seen_subcommand_from ${second}`);
  const none = quoted(`${chosen}; and not __fish_seen_subcommand_from ${secondWords(first).join(' ')}`);
  const line = (when: string, rest: string): string => `complete -c agent-host -n ${when} ${rest}`;
  return [
    ...(second === undefined ? [] : [line(none, `-a ${second} -d ${quoted(summary)}`)]),
    ...valuesOf(words).map((value) => line(seen, `-a ${value}`)),
    ...Object.entries(options).map(([option, one]) => line(seen, `${fishFlags(option, one)} -d ${quoted(one.what)}`)),
    ...(/file|directory/.test(words) ? [line(seen, '-F')] : []),
  ];
}

function fishFlags(name: string, { type, short }: Option): string {
  const flags = [`-l ${name}`, short === undefined ? '' : `-s ${short}`, type === 'string' ? '-r -F' : ''];
  return flags.filter((flag) => flag !== '').join(' ');
}
