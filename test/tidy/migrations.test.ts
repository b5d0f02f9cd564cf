import { readdirSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { usedByLastRelease } from '../support/last-release.ts';
import type { UsedByRelease } from '../support/last-release.ts';
import { violations } from '../support/migration-rules.ts';
import { read, ROOT } from './tree.ts';

/**
 * Nodes of the version before read and write beside a migration, so it only adds: docs/adding-a-read-model.md. What breaks
 * that is found here, not by the nodes.
 */

const RELEASE: UsedByRelease = { version: [0, 12], usesSchema: (name) => name === 'sessions' };

/** What the rule says of a file of this number. */
function said(text: string, name = '0042-example.sql'): readonly string[] {
  return violations([{ name, text }], () => RELEASE);
}

test('the migrations of this version only add', () => {
  const names = readdirSync(path.join(ROOT, 'migrations')).toSorted();
  expect(names.length).toBeGreaterThan(9);
  const files = names.map((name) => ({ name, text: read(`migrations/${name}`) }));
  expect(violations(files, usedByLastRelease)).toEqual([]);
});

test('no two migrations have a number in common, and none is missing', () => {
  const numbers = readdirSync(path.join(ROOT, 'migrations'))
    .toSorted()
    .map((name) => Number(name.slice(0, 4)));
  expect(numbers).toEqual(numbers.map((_, n) => n + 1));
});

describe('a migration is refused that', () => {
  test.each([
    ['empties a table', 'truncate sessions.session;', 'truncates'],
    ['adds a column', 'alter table sessions.session add column x text;', 'alters sessions.session'],
    ['takes a column away', 'ALTER TABLE sessions.session\n  DROP COLUMN doc;', 'alters sessions.session'],
    ['changes a type', 'alter table sessions.session alter column doc type text;', 'alters sessions.session'],
    ['forbids null', 'alter table only sessions.session alter x set not null;', 'alters sessions.session'],
    ['renames a table', 'alter table sessions.session rename to old;', 'renames'],
    ['renames a schema', 'alter schema sessions rename to old;', 'renames'],
    ['moves a table', 'alter table sessions.session set schema elsewhere;', 'moves a table'],
    ['changes an index', 'alter index sessions.session_by_agent set (fillfactor = 70);', 'alters what is there'],
    ['indexes a table that is there', 'create unique index on sessions.session (id);', 'makes an index on'],
    ['deletes rows', 'delete from sessions.session where true;', 'deletes rows'],
    ['deletes rows on the way', 'with gone as (delete from a.b returning *) select * from gone;', 'deletes rows'],
    ['changes rows', 'update sessions.session set id = id;', 'changes rows'],
    ['drops a table', 'drop table sessions.session;', 'drops sessions.session without'],
    ['drops an index', 'drop index sessions.session_by_agent;', 'drops something other'],
    ['hides what it does', 'do $$ begin null; end $$;', 'runs code'],
    ['keeps a schema to itself', 'create schema sessions_2;', 'does not list it'],
  ])('%s', (_, text, reason) => {
    expect(said(`create table other.thing (id text);\n${text}`).join('\n')).toContain(reason);
    // Before the rule, such files were applied.
    expect(said(text, '0009-before.sql')).toEqual([]);
  });

  test.each([
    ['what the last release uses', 'sessions', '0.12', 'the last release uses'],
    ['what a release that is not out has left', 'agents', '0.13', 'not out'],
    ['something else than it says', 'tenants', '0.12', 'drops agents without'],
  ])('removes %s', (_, name, since, reason) => {
    const dropped = name === 'tenants' ? 'agents' : name;
    const text = `-- removes: ${name}, unused since release ${since}\ndrop schema ${dropped} cascade;`;
    expect(said(text).join('\n')).toContain(reason);
  });
});

describe('a migration is applied that', () => {
  test('makes a new shape beside the old one', () => {
    const text = `-- Nothing is dropped, and no row is changed: update, delete from, truncate.
      create schema sessions_2;
      create table sessions_2.checkpoint (like sessions.checkpoint including all);
      create table sessions_2.session (tenant text not null, id text not null, note text default 'drop table x; update y ');
      alter table sessions_2.session add primary key (tenant, id);
      create index session_by_id on sessions_2.session (id);
      insert into public.read_model (schema) values ('sessions_2') on conflict do nothing;`;
    expect(said(text)).toEqual([]);
  });

  test('removes what the last release does not use', () => {
    const text =
      '-- removes: agents, tenants.audit, unused since release 0.12\ndrop table tenants.audit;\ndrop schema agents cascade;';
    expect(said(text)).toEqual([]);
  });
});

test('of the last release it is known what it uses', () => {
  const { version, usesSchema } = usedByLastRelease();
  expect(version[1]).toBeGreaterThanOrEqual(11);
  expect(usesSchema('sessions')).toBe(true);
  expect(usesSchema('sessions_of_no_version')).toBe(false);
});
