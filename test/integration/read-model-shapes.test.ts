import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { EVENT_SCHEMAS } from '#src/app/event-schemas.ts';
import { PROJECTIONS } from '#src/app/projectors.ts';
import type { ProjectionGroup } from '#src/projections/projection.ts';
import type { Commit, StoredCommit } from '#src/streams/commit.ts';
import type { AggregateKind, AggregateRef } from '#src/streams/subjects.ts';
import { hashOf } from '../support/commits.ts';
import type { TestDatabase } from '../support/postgres.ts';
import { applyRows } from '../support/read-side.ts';
import { useServers } from '../support/servers.ts';

/**
 * The rows of a schema never change what they mean: nodes of two versions read and write the same ones during an upgrade.
 * What each schema is made of, and which rows a history gives that was published once, is written down beside this file.
 */
const shape = z.strictObject({ columns: z.string(), rows: z.int(), digest: z.string() });
const SHAPES = z.record(z.string(), z.record(z.string(), shape)).parse(JSON.parse(support('read-model-shapes.json')));
type Shape = z.infer<typeof shape>;

const published = support('published-history.jsonl')
  .trimEnd()
  // Written once by this program's own codec; a line is a commit.
  .split('\n')
  .map((line, n): StoredCommit => {
    const { ref, commit } = JSON.parse(line) as { ref: AggregateRef; commit: Commit };
    return { ref, commit, shard: 0, position: 7 + 3 * n, hash: hashOf(commit) };
  });

const servers = useServers({ postgres: true });

test.each(PROJECTIONS.map((group) => [group.name, group] as const))(
  'the rows of %s mean what they did',
  async (_, group) => {
    await using database = await servers.postgres.migrated();
    const pool = await database.pool();
    const commits = published.filter(({ ref }) => group.kinds.includes(ref.kind));
    await applyRows(pool, group, { schema: group.schema, batches: [commits] });
    const shapes = await shapesOf(database, group);
    const told = `The rows or columns of the schema ${group.schema} have changed. Nodes of the version before read and write them
    too: give the group a new schema in src/projections/schemas.ts, make it in a migration, and add its entry to
    test/support/read-model-shapes.json (docs/adding-a-read-model.md). This is what ${group.schema} is now:
    ${JSON.stringify({ [group.schema]: shapes })}`;
    for (const { rows } of Object.values(shapes))
      expect(rows, 'the history has something for every table').toBeGreaterThan(0);
    expect(SHAPES[group.schema], told).toEqual(shapes);
  },
);

test('what was published can still be read', () => {
  const kinds = new Set<AggregateKind>();
  for (const { ref, commit } of published) {
    kinds.add(ref.kind);
    for (const { type, data } of commit.events) {
      const schema = EVENT_SCHEMAS[ref.kind]?.[type];
      expect(schema?.safeParse(data).error, `${ref.kind}: ${type}`).toBeUndefined();
      expect(schema, type).toBeDefined();
    }
  }
  const found = [...kinds].toSorted();
  expect(found).toEqual(['agent', 'artifact', 'quota', 'sandbox', 'session', 'tenant', 'vault']);
});

/** Checkpoint and parked are the machinery's, and the same in each schema. */
async function shapesOf(database: TestDatabase, { schema, tables }: ProjectionGroup): Promise<Record<string, Shape>> {
  const shapes: Record<string, Shape> = {};
  for (const table of tables) {
    const columns = await database.query<{ text: string }>(`
      select column_name || ' ' || udt_name || case when is_nullable = 'NO' then ' not null' else '' end as text
      from information_schema.columns where table_schema = '${schema}' and table_name = '${table}' order by ordinal_position`);
    const { [table]: rows = [] } = await database.rows(schema, [table]);
    const digest = createHash('sha256').update(rows.join('\n')).digest('hex').slice(0, 16);
    shapes[table] = { columns: columns.map(({ text }) => text).join(', '), rows: rows.length, digest };
  }
  return shapes;
}

function support(name: string): string {
  return readFileSync(new URL(`../support/${name}`, import.meta.url), 'utf8');
}
