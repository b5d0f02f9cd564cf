import type { ProjectionGroup } from '#src/projections/projection.ts';
import type { Statement } from '#src/projections/read-store/pool.ts';
import type { TestDatabase } from './postgres.ts';

/** Rows that are really there, of each table: enough for statistics to have the shape of the whole. */
const SAMPLE = 10_000;
/** What the planner is made to count with, unless the table has less. */
const ROWS = 5_000_000;
const FEWER: Readonly<Record<string, number>> = {
  ...{ tenant: 10_000, agent: 10_000, agent_version: 10_000, vault: 10_000, account: 10_000, sandbox: 5_000 },
  ...{ tally: 10_000 },
  ...{ session: 1_000_000, artifact: 1_000_000, interaction: 1_000_000, audit: 1_000_000 },
};

/** What rows of the sample have in common with what is asked for. */
export interface Sample {
  /** Has nine rows of ten. */
  readonly tenant: string;
  /** Digests, as the columns have them. */
  readonly subject: string;
  readonly label: string;
  /** A quarter of all sessions have it. */
  readonly commonLabel: string;
  /** Has one row of five thousand. */
  readonly rareAgent: string;
}

/** SQL for the values of a column, by its name or by table and column; `i` counts the rows. */
function valuesOf({ tenant, subject, label, commonLabel, rareAgent }: Sample): Readonly<Record<string, string>> {
  const time = `to_char(timestamp '2026-01-01' + i * interval '50 minutes', 'YYYY-MM-DD"T"HH24:MI:SS.000"Z"')`;
  const agent = `case when i % 5000 = 3 then '${rareAgent}' else 'agents/' || i % 37 end`;
  const oneIn = (count: number, rare: string, other: string): string =>
    `case when i % ${count} = 3 then ${rare} else ${other} end`;
  return {
    tenant: oneIn(11, `'tn_' || i % 500`, `'${tenant}'`),
    'tenant.tenant': `'tn_' || i`,
    'tenant.id': `'tn_' || i`,
    'tenant.state': oneIn(997, `'draining'`, `'open'`),
    id: `'x_' || i`,
    session_id: `'x_' || i / 5`,
    agent_id: agent,
    'audit.agent_id': oneIn(199, `'agents/' || i % 37`, 'null'),
    'audit.vault_id': oneIn(199, `'vt_' || i % 37`, 'null'),
    session_agent: agent,
    subject: oneIn(499, `'${subject}'`, 'md5((i % 499)::text)'),
    labels: oneIn(499, `array['${label}', '${commonLabel}']`, oneIn(4, `array['${commonLabel}']`, `'{}'`)),
    'session.status': oneIn(499, `'running'`, `'idle'`),
    'action.status': oneIn(499, `'pending'`, `'completed'`),
    'interaction.status': oneIn(499, `'open'`, `'answered'`),
    'sandbox.state': oneIn(13, `'running'`, `'stopped'`),
    'usage.grouped_by': `(array['all', 'agent', 'model', 'session'])[1 + i % 4]`,
    'usage.bucket': `left(${time}, (array[0, 10, 13, 16])[1 + i % 3])`,
    'usage.group_key': `case i % 4 when 0 then '' when 1 then 'agents/' || i % 37 when 2 then 'model' else 'x_' || i / 5 end`,
    'tally.tenant': `case when i = 7 then '${tenant}' else 'tn_' || i end`,
    outcome: oneIn(997, `'pending'`, `'completed'`),
    removed: oneIn(53, '1', '0'),
    due_at: oneIn(503, time, 'null'),
    ...{ created_at: time, updated_at: time, at: time },
  };
}

const BY_TYPE: Readonly<Record<string, string>> = {
  ...{
    text: `'x_' || i`,
    bytea: `decode(repeat(md5(i::text), 20), 'hex')`,
    bool: 'false',
    _text: `'{}'::text[]`,
    numeric: '0.001',
  },
  ...{ int4: 'i', int8: '1000000 + i' },
};

/**
 * Replaces the rows of read models with some that nothing but the planner reads, and lets it believe in a large
 * installation: a table's estimated rows are its pages times the density that the catalogue says.
 */
export async function believedLarge(
  database: TestDatabase,
  groups: readonly ProjectionGroup[],
  sample: Sample,
): Promise<void> {
  const values = valuesOf(sample);
  for (const { schema, tables } of groups) {
    for (const table of tables) {
      const columns = await database.query<{ name: string; type: string }>(`
        select column_name as name, udt_name as type from information_schema.columns
        where table_schema = '${schema}' and table_name = '${table}' order by ordinal_position`);
      const made = columns.map(({ name, type }) => values[`${table}.${name}`] ?? values[name] ?? BY_TYPE[type]);
      const name = `${schema}.${table}`;
      await database.query(`
        alter table ${name} set (autovacuum_enabled = false);
        truncate ${name};
        insert into ${name} select ${made.join(', ')} from generate_series(1, ${SAMPLE}) i`);
      await database.query(`vacuum (analyze) ${name}`);
      await database.query(`
        update pg_class set reltuples = reltuples * ${FEWER[table] ?? ROWS} / ${SAMPLE}
        where oid = '${name}'::regclass or oid in (select indexrelid from pg_index where indrelid = '${name}'::regclass)`);
    }
  }
}

/** A node of a plan, as EXPLAIN writes it. */
export interface PlanNode {
  readonly 'Node Type': string;
  readonly 'Relation Name'?: string;
  readonly 'Index Name'?: string;
  readonly 'Index Cond'?: string;
  readonly 'Plan Rows': number;
  readonly 'Total Cost': number;
  readonly Plans?: readonly PlanNode[];
}

/** How Postgres would run a statement. */
export async function planOf(database: TestDatabase, { sql, values }: Statement): Promise<PlanNode> {
  const [row] = await database.query<{ 'QUERY PLAN': readonly [{ readonly Plan: PlanNode }] }>(
    `explain (format json) ${sql}`,
    values,
  );
  if (row === undefined) throw new Error('there is no plan');
  return row['QUERY PLAN'][0].Plan;
}

/** Tables of the machinery: a row for each shard, and for each commit that could not be projected. */
const SMALL = new Set(['checkpoint', 'parked']);
/** The digest of a label is keyed with the tenant's key, so it is as good as the tenant in front of it. */
const DIGESTS_FIRST = new Set(['session_by_label']);
/** Rows that are sorted or counted at once. */
const AT_ONCE_MAX = 5_000;
/**
 * In pages read in order, as the planner counts: a page of a list takes some hundred, a thousand rows that are each looked
 * up some thousands, all rows of a tenant hundreds of thousands.
 */
const COST_MAX = { tenants: 4_000, installation: 10_000 };

/** What of a plan grows with the installation or, of a tenant's read, with the tenant. */
export function growing(plan: PlanNode, isTenants: boolean): string[] {
  const costMax = isTenants ? COST_MAX.tenants : COST_MAX.installation;
  const found = plan['Total Cost'] > costMax ? [`costs ${Math.round(plan['Total Cost'])}`] : [];
  const visit = (node: PlanNode): void => {
    found.push(...readingAll(node), ...atOnce(node));
    if (isTenants) found.push(...acrossTenants(node));
    for (const child of node.Plans ?? []) visit(child);
  };
  visit(plan);
  return found;
}

function readingAll({ 'Node Type': type, 'Relation Name': table = '' }: PlanNode): string[] {
  return type === 'Seq Scan' && !SMALL.has(table) ? [`reads all of ${table}`] : [];
}

function atOnce({ 'Node Type': type, Plans = [] }: PlanNode): string[] {
  if (!/Sort|Aggregate/.test(type)) return [];
  const many = Plans.map((child) => child['Plan Rows']).filter((rows) => rows > AT_ONCE_MAX);
  return many.map((rows) => `${type} of ${rows} rows`);
}

/** An index by which the rows of others are passed. */
function acrossTenants({ 'Index Name': index = '', 'Index Cond': condition = '' }: PlanNode): string[] {
  const isExempt = index === '' || DIGESTS_FIRST.has(index) || [...SMALL].some((name) => index.startsWith(name));
  return isExempt || /^\(+(\w+\.)?tenant = /.test(condition) ? [] : [`goes through ${index} by ${condition}`];
}
