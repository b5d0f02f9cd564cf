import { describe, expect, test } from 'vitest';
import type { McpDriver, McpTools } from '#src/drivers/mcp/port.ts';
import { callOn, listOn, serverAt, textOf } from '../support/mcp.ts';
import { ScriptedServer } from '../support/mcp-servers.ts';

/** A driver that may call loopback, and ends with the scope. */
export type OpenDriver = () => { readonly driver: McpDriver } & AsyncDisposable;

const OBJECT = { type: 'object' };
const MIB = 1_048_576;

export async function toolsOf(driver: McpDriver, server: ReturnType<typeof serverAt>): Promise<McpTools> {
  const listing = await listOn(driver, server);
  if (listing.kind !== 'tools') throw new Error(JSON.stringify(listing));
  return listing;
}

export function nested(levels: number): object {
  let value: object = {};
  for (let level = 0; level < levels; level += 1) value = { properties: { x: value } };
  return value;
}

/** What servers declare, within bounds: the first half of what a driver for MCP servers guarantees. */
export function listingSuite(open: OpenDriver): void {
  describe('tools that a server declares', () => {
    test.each([
      ['which are too many', Array.from({ length: 10_000 }, (_, i) => ({ name: `t${i}`, inputSchema: OBJECT })), 256],
      ['with the same name', [1, 2, 3].map(() => ({ name: 'twice', inputSchema: OBJECT })), 1],
      ['that are none', [1, null, 'x', [], {}, { name: 5 }, { name: '', inputSchema: OBJECT }, { name: 'x' }], 0],
      [
        'with a schema that does not compile',
        [{ name: 'a', inputSchema: { ...OBJECT, properties: { x: { type: 5 } } } }],
        0,
      ],
      ['with a schema that refers to what is not there', [{ name: 'a', inputSchema: { ...OBJECT, $ref: '#/x' } }], 0],
      ['with a schema without a bottom', [{ name: 'a', inputSchema: { ...OBJECT, ...nested(5_000) } }], 0],
      ['with a schema of 1 MiB', [{ name: 'a', inputSchema: { ...OBJECT, title: 'x'.repeat(MIB) } }], 0],
      ['with a name of 1 MiB', [{ name: 'x'.repeat(MIB), inputSchema: OBJECT }], 0],
      ['that run as tasks', [{ name: 'a', inputSchema: OBJECT, execution: { taskSupport: 'required' } }], 0],
    ])('%s', async (_what, tools, taken) => {
      await using opened = open();
      await using server = await ScriptedServer.start();
      server.tools = [...tools, { name: 'good', inputSchema: OBJECT }];
      if (tools.length > 256) server.tools = server.tools.toReversed();
      const listing = await toolsOf(opened.driver, serverAt(server.url));
      const isFull = taken === 256;
      expect(listing.tools).toHaveLength(isFull ? taken : taken + 1);
      expect(listing.tools.map(({ tool }) => tool)).toContain('good');
      expect(listing.refusedCount).toBe(tools.length - taken + (isFull ? 1 : 0));
      expect(listing.refused.length).toBeLessThanOrEqual(20);
      for (const { tool, reason } of listing.refused) expect(`${tool} ${reason}`.length).toBeLessThan(400);
    });

    test('of which some are wanted, however many there are', async () => {
      await using opened = open();
      await using server = await ScriptedServer.start();
      server.tools = Array.from({ length: 10_000 }, (_, i) => ({ name: `t${i}`, inputSchema: OBJECT }));
      const listing = await toolsOf(opened.driver, serverAt(server.url, { only: ['t9999', 't5', 'none'] }));
      expect(listing.tools.map(({ tool }) => tool)).toEqual(['t5', 't9999']);
      expect(listing.refusedCount).toBe(0);
    });

    test('with descriptions of 1 MiB, which are cut, and lists that are larger than one answer may be', async () => {
      await using opened = open();
      await using server = await ScriptedServer.start();
      server.tools = [1, 2, 3].map((i) => ({ name: `t${i}`, inputSchema: OBJECT, description: 'x'.repeat(MIB) }));
      const { tools } = await toolsOf(opened.driver, serverAt(server.url));
      expect(tools.map(({ description }) => description.length)).toEqual([8_192, 8_192, 8_192]);
      server.tools = Array.from({ length: 10 }, (_, i) => ({
        name: `t${i}`,
        inputSchema: OBJECT,
        description: 'x'.repeat(MIB),
      }));
      const other = await listOn(opened.driver, serverAt(server.url, { name: 'other' }));
      expect(other).toMatchObject({ kind: 'unavailable', reason: expect.stringContaining('is larger than') as string });
    });

    test('in pages, as long as there are new ones', async () => {
      await using opened = open();
      await using server = await ScriptedServer.start();
      let pages = 0;
      server.before = ({ method, params }) => {
        if (method !== 'tools/list') return undefined;
        pages += 1;
        const page = Number(params['cursor'] ?? 0);
        return {
          tools: [{ name: `t${page}`, inputSchema: OBJECT }],
          nextCursor: page < 3 ? String(page + 1) : undefined,
        };
      };
      expect((await toolsOf(opened.driver, serverAt(server.url))).tools).toHaveLength(4);
      server.before = ({ method }) => {
        if (method !== 'tools/list') return undefined;
        pages += 1;
        return { tools: [], nextCursor: 'the same' };
      };
      const other = serverAt(server.url, { name: 'b' });
      expect(await toolsOf(opened.driver, other)).toMatchObject({ tools: [], refusedCount: 1 });
      server.before = ({ method }) => {
        if (method !== 'tools/list') return undefined;
        pages += 1;
        return { tools: [], nextCursor: String(pages) };
      };
      pages = 0;
      const third = serverAt(server.url, { name: 'c' });
      expect(await toolsOf(opened.driver, third)).toMatchObject({ tools: [], refusedCount: 1 });
      expect(pages).toBeLessThanOrEqual(32);
    });

    test('by names that models take, each its own', async () => {
      await using opened = open();
      await using server = await ScriptedServer.start();
      const names = [
        'plain',
        'a.b',
        'a/b',
        'ä',
        'ö',
        '😀',
        ' ',
        'x'.repeat(200),
        `${'x'.repeat(199)}y`,
        '__proto__',
        'constructor',
      ];
      server.tools = names.map((name) => ({ name, inputSchema: OBJECT }));
      const { tools } = await toolsOf(opened.driver, serverAt(server.url));
      expect(tools).toHaveLength(names.length);
      expect(new Set(tools.map(({ name }) => name)).size).toBe(names.length);
      for (const { name } of tools) expect(name).toMatch(/^srv_[A-Za-z0-9_-]{1,60}$/);
      expect(tools.find(({ tool }) => tool === 'plain')?.name).toBe('srv_plain');
      await using again = open();
      expect((await toolsOf(again.driver, serverAt(server.url))).tools).toEqual(tools);
    });

    test('with hints, of which an absent one counts as the less harmless value', async () => {
      await using opened = open();
      await using server = await ScriptedServer.start();
      const hints = [
        {},
        { readOnlyHint: true },
        { idempotentHint: true },
        { destructiveHint: false },
        { readOnlyHint: 'yes' },
      ];
      server.tools = hints.map((annotations, i) => ({ name: `t${i}`, inputSchema: OBJECT, annotations }));
      const { tools } = await toolsOf(opened.driver, serverAt(server.url));
      expect(tools.map(({ readOnly, idempotent, destructive }) => [readOnly, idempotent, destructive])).toEqual([
        [false, false, true],
        [true, false, false],
        [false, true, true],
        [false, false, false],
        [false, false, true],
      ]);
    });

    test('are asked for once by all who need them at the same moment, and kept', async () => {
      await using opened = open();
      await using server = await ScriptedServer.start();
      const session = serverAt(server.url);
      await Promise.all(Array.from({ length: 20 }, async () => await toolsOf(opened.driver, session)));
      await toolsOf(opened.driver, serverAt(server.url));
      expect(server.asked.filter((method) => method === 'tools/list')).toHaveLength(1);
      await toolsOf(opened.driver, serverAt(server.url, { tenant: 'tn_other' }));
      expect(server.asked.filter((method) => method === 'tools/list')).toHaveLength(2);
    });

    test('and are another one when the declaration is: nothing is called then', async () => {
      await using opened = open();
      await using server = await ScriptedServer.start();
      const [seen] = (await toolsOf(opened.driver, serverAt(server.url))).tools;
      server.tools = [{ name: 'act', description: 'Deletes everything', inputSchema: OBJECT }];
      await using other = open();
      const call = { tool: 'act', digest: seen?.digest ?? '' };
      const changed = { kind: 'failed', code: 'changed', mayHaveHappened: false };
      expect(await callOn(other.driver, serverAt(server.url), call)).toMatchObject(changed);
      expect(server.calls).toBe(0);
      const [now] = (await toolsOf(other.driver, serverAt(server.url))).tools;
      expect(textOf(await callOn(other.driver, serverAt(server.url), { ...call, digest: now?.digest ?? '' }))).toBe(
        'done',
      );
      // This node still keeps what it was, and finds the newer one when it is asked for that.
      expect(textOf(await callOn(opened.driver, serverAt(server.url), { ...call, digest: now?.digest ?? '' }))).toBe(
        'done',
      );
    });
  });
}
