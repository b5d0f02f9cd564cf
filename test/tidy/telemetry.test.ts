import { expect, test } from 'vitest';
import { z } from 'zod';
import { Metrics } from '#src/app/metrics/metrics.ts';
import { importsOf, read, sources } from './tree.ts';

/** The dashboard, the alerts and the page speak of the metrics that there are. */
const DASHBOARD = 'deploy/grafana/agent-host.json';
const ALERTS = 'deploy/prometheus/alerts.yml';
const PAGE = 'docs/telemetry.md';

/** What the process itself is measured by comes from a library, and the page names it as a whole. */
const ofProcess = (name: string): boolean => /^agent_host_(process|nodejs)_/.test(name);

const registered = new Metrics().registry.getMetricsAsArray().map((metric) => ({
  name: metric.name,
  type: String(metric.type),
  // Declared by every kind of metric, but not by the type of a metric in general.
  labels: [...((metric as { labelNames?: string[] }).labelNames ?? [])].sort(),
}));

/** Series that a query may name: those of a histogram have endings. */
const series = new Set(
  registered.flatMap(({ name, type }) =>
    type === 'histogram' ? ['_bucket', '_count', '_sum'].map((ending) => name + ending) : [name],
  ),
);

const seriesIn = (text: string): string[] => [...text.matchAll(/agent_host_[a-z0-9_]+/g)].map(([name]) => name);
const unknownIn = (text: string): string[] => seriesIn(text).filter((name) => !series.has(name));

const target = z.object({ expr: z.string(), datasource: z.object({ uid: z.literal('${datasource}') }) });
const dashboard = z.object({
  title: z.string(),
  uid: z.string(),
  schemaVersion: z.int(),
  templating: z.object({ list: z.array(z.object({ name: z.string(), type: z.string() })) }),
  panels: z.array(
    z.object({
      id: z.int(),
      type: z.string(),
      title: z.string(),
      gridPos: z.object({ x: z.int(), y: z.int(), w: z.int(), h: z.int() }),
      targets: z.array(target).optional(),
    }),
  ),
});

test('the dashboard is whole, and asks for series that there are', () => {
  const { templating, panels } = dashboard.parse(JSON.parse(read(DASHBOARD)));
  expect(templating.list).toContainEqual(expect.objectContaining({ name: 'datasource', type: 'datasource' }));
  expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
  expect(panels.filter(({ gridPos: { x, w } }) => x + w > 24)).toEqual([]);
  const queries = panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
  expect(queries.length).toBeGreaterThan(30);
  expect(queries.flatMap(unknownIn)).toEqual([]);
});

test('every metric is on the dashboard or in an alert', () => {
  const used = new Set([...seriesIn(read(DASHBOARD)), ...seriesIn(read(ALERTS))]);
  const names = registered.map(({ name }) => name).filter((name) => !ofProcess(name));
  expect(names.filter((name) => ![name, `${name}_bucket`, `${name}_count`].some((one) => used.has(one)))).toEqual([]);
});

test('alerts ask for series that there are, say what is wrong, and link to what to do', () => {
  const rules = read(ALERTS).split(/^ +- alert: /m);
  expect(rules.length).toBeGreaterThan(10);
  expect(unknownIn(read(ALERTS))).toEqual([]);
  for (const rule of rules.slice(1)) {
    expect(rule).toMatch(/^ +expr: ./m);
    expect(rule).toMatch(/^ +summary: ./m);
    expect(rule).toMatch(/^ +runbook_url: docs\/(operations\/troubleshooting|models|telemetry)\.md#[a-z-]+$/m);
  }
});

test('the page has every metric with its type and labels, and no other', () => {
  const rows = read(PAGE).matchAll(/^\| `(agent_host_[a-z0-9_]+)` \| (\w+) \| ([^|]*)\|/gm);
  const documented = [...rows].map(([, name = '', type, labels = '']) => ({
    ...{ name, type },
    labels: [...labels.matchAll(/`(\w+)`/g)].map(([, label = '']) => label).sort(),
  }));
  const byName = (a: { name: string }, b: { name: string }): number => (a.name < b.name ? -1 : 1);
  expect(documented.sort(byName)).toEqual(registered.filter(({ name }) => !ofProcess(name)).sort(byName));
});

test('the exporter of traces is loaded by who asks for it, never by an import of the program', () => {
  const naming = (module: string): string[] =>
    sources('src').filter((file) => importsOf(file).some((specifier) => specifier.includes(module)));
  expect(naming('@opentelemetry/')).toEqual(['src/drivers/spans/otlp.ts']);
  expect(naming('spans/otlp.ts')).toEqual(['src/app/traces.ts']);
  expect(read('src/app/traces.ts')).not.toMatch(/^import .*otlp\.ts/m);
});
