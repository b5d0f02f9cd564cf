import { removedBy } from '#src/projections/read-store/migrate.ts';
import type { UsedByRelease } from './last-release.ts';

/** A file of `migrations/`. */
export interface MigrationFile {
  readonly name: string;
  readonly text: string;
}

/** Files from this number on only add: nodes of the version before go on with what is there. */
const ADDING_FROM = 10;

/** Words that no statement has, whatever it does with them; `update` is that of a row, not of a conflict or a lock. */
const NEVER: readonly (readonly [what: string, pattern: RegExp])[] = [
  ['truncates', /\btruncate\b/],
  ['renames', /\brename\b/],
  ['deletes rows', /\bdelete\s+from\b/],
  ['changes rows', /(?<!\b(?:do|for|key|on)\s+)\bupdate\s+(?:only\s+)?[\w".]+\s/],
  ['moves a table', /\bset\s+schema\b/],
  [
    'runs code that cannot be looked through',
    /^do\b|\bexecute\b|\bcreate\s+(?:or\s+replace\s+)?(?:function|procedure)\b/,
  ],
];

/** What breaks the rule that migrations only add, a line each. */
export function violations(files: readonly MigrationFile[], release: () => UsedByRelease): readonly string[] {
  return files.filter(({ name }) => numberOf(name) >= ADDING_FROM).flatMap((file) => violationsOf(file, release));
}

function violationsOf(file: MigrationFile, release: () => UsedByRelease): readonly string[] {
  const statements = statementsOf(file.text);
  const made = new Set(statements.flatMap((statement) => madeBy(statement) ?? []));
  const found = statements.flatMap((statement) => [
    ...NEVER.flatMap(([what, pattern]) => (pattern.test(statement) ? [what] : [])),
    ...removalOf(statement, file, release),
    ...changeOf(statement, made),
  ]);
  for (const schema of statements.flatMap((statement) => schemaMadeBy(statement) ?? [])) {
    if (!new RegExp(`insert into public\\.read_model\\b[^;]*'${schema}'`).test(file.text.toLowerCase()))
      found.push(`makes the schema ${schema} and does not list it in public.read_model`);
  }
  return found.map((what) => `${file.name} ${what}`);
}

/** A table that is altered or indexed is locked for those who use it, unless nobody can. */
function changeOf(statement: string, made: ReadonlySet<string>): readonly string[] {
  const altered = /\balter\s+table\s+(?:if\s+exists\s+)?(?:only\s+)?([\w".]+)/.exec(statement)?.[1];
  if (altered !== undefined && !made.has(altered)) return [`alters ${altered}, which is there already`];
  const indexed = /\bcreate\s+(?:unique\s+)?index\b.*?\bon\s+(?:only\s+)?([\w".]+)/.exec(statement)?.[1];
  if (indexed !== undefined && !made.has(indexed)) return [`makes an index on ${indexed}, which is there already`];
  if (/\balter\s+(?!table\b)\w+/.test(statement) && altered === undefined) return ['alters what is there already'];
  return [];
}

function removalOf(statement: string, { text }: MigrationFile, release: () => UsedByRelease): readonly string[] {
  if (!/\bdrop\b/.test(statement)) return [];
  const names = /^drop\s+(?:schema|table)\s+(?:if\s+exists\s+)?([\w".,\s]+?)(?:\s+(?:cascade|restrict))?$/.exec(
    statement,
  )?.[1];
  if (names === undefined) return ['drops something other than schemas or tables'];
  const declared = removedBy(text);
  return names.split(',').flatMap((part) => {
    const name = part.trim();
    if (!declared.includes(name)) return [`drops ${name} without "-- removes: ${name}, unused since release <x.y>"`];
    return stillUsed(name, text, release());
  });
}

function stillUsed(name: string, text: string, release: UsedByRelease): readonly string[] {
  const [schema = ''] = name.split('.');
  if (release.usesSchema(schema)) return [`drops ${name}, which the last release uses`];
  const line = text.split('\n').find((one) => one.startsWith('-- removes: ') && one.includes(name)) ?? '';
  const [, major = '', minor = ''] = /since release (\d+)\.(\d+)/.exec(line) ?? [];
  const [lastMajor, lastMinor] = release.version;
  const isOut = Number(major) < lastMajor || (Number(major) === lastMajor && Number(minor) <= lastMinor);
  return isOut ? [] : [`drops ${name} as unused since a release that is not out`];
}

/** In lower case, without comments and the content of strings. */
function statementsOf(text: string): readonly string[] {
  return text
    .replaceAll(/--.*$/gm, '')
    .replaceAll(/'(?:[^']|'')*'/g, "''")
    .split(';')
    .map((statement) => statement.replaceAll(/\s+/g, ' ').trim().toLowerCase())
    .filter((statement) => statement !== '');
}

function madeBy(statement: string): string | undefined {
  return /^create\s+(?:unlogged\s+)?table\s+([\w".]+)/.exec(statement)?.[1];
}

function schemaMadeBy(statement: string): string | undefined {
  return /^create\s+schema\s+([\w"]+)/.exec(statement)?.[1];
}

function numberOf(name: string): number {
  return Number(name.slice(0, 4));
}
