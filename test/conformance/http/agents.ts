import { describe, expect, test } from 'vitest';
import type { z } from 'zod';
import * as agentWire from '#src/http/wire/agents.ts';
import * as wire from '#src/http/wire/schemas.ts';
import type { TenantClient } from '../../support/client.ts';
import { newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

const manifest = (instructions: string) => ({ instructions, model: { provider: 'fixture', model: 'any' } });

/** Agent definitions. */
export function agentSuite(target: () => HttpTarget): void {
  const save = async (tenant: TenantClient, id: string, body: unknown) =>
    shaped(
      await tenant.request({ method: 'PUT', path: `/v1/agents/${encodeURIComponent(id)}`, body }),
      200,
      agentWire.agentSaved,
    );

  describe('agents', () => {
    test('a version for each change: A, B, A are three', async () => {
      const tenant = await newTenant(target());
      const first = await save(tenant, 'a', { manifest: manifest('A'), requestId: 'r' });
      expect(first).toMatchObject({ agentId: 'a', version: 1, implementationVersion: null });
      expect(first.manifestHash).toMatch(/^[0-9a-f]{64}$/);
      expect(await save(tenant, 'a', { manifest: manifest('A') })).toEqual(first);
      const reordered = Object.fromEntries(Object.entries(manifest('A')).reverse());
      expect(await save(tenant, 'a', { manifest: reordered })).toEqual(first);
      const second = await save(tenant, 'a', { manifest: manifest('B') });
      expect(second.version).toBe(2);
      expect(second.manifestHash).not.toBe(first.manifestHash);
      expect(await save(tenant, 'a', { manifest: manifest('A') })).toEqual({ ...first, version: 3 });
      const built = { manifest: manifest('A'), implementationVersion: 'v1' };
      expect(await save(tenant, 'a', built)).toEqual({ ...first, version: 4, implementationVersion: 'v1' });
      const { versions } = shaped(
        await tenant.request({ path: '/v1/agents/a/versions' }),
        200,
        agentWire.agentVersions,
      );
      expect(versions.map(({ version }) => version).toSorted((a, b) => a - b)).toEqual([1, 2, 3, 4]);
      expect(versions.map(({ manifestHash }) => manifestHash)).toContain(second.manifestHash);
      const versionAt = async (version: unknown) =>
        await tenant.at(target().nodes[1]).request({ path: `/v1/agents/a/versions/${String(version)}` });
      for (const shown of versions) {
        const one = shaped(await versionAt(shown.version), 200, agentWire.savedAgentVersion);
        expect(one).toEqual({ ...shown, manifest: manifest(shown.version === 2 ? 'B' : 'A') });
      }
      refused(await versionAt(5), 404, 'not_found');
      refused(await tenant.request({ path: '/v1/agents/absent/versions/1' }), 404, 'not_found');
      for (const wrong of ['0', 'latest', '1.5', '-1']) refused(await versionAt(wrong), 400, 'invalid_request');
    });

    test('reading one back, with its manifest, at another node at once', async () => {
      const tenant = await newTenant(target());
      const whole = { ...manifest('Be kind.'), name: 'Kind', description: 'd', metadata: { a: [1, { b: null }] } };
      await save(tenant, 'team/kind.v1', { manifest: whole });
      const other = tenant.at(target().nodes[1]);
      const found = shaped(await other.request({ path: '/v1/agents/team%2Fkind.v1' }), 200, agentWire.agent);
      expect(found).toMatchObject({ agentId: 'team/kind.v1', name: 'Kind', description: 'd', archived: false });
      expect(found.manifest).toEqual(whole);
    });

    test('the list has all of them, page by page, and a new one at once', async () => {
      const tenant = await newTenant(target());
      const ids = ['agent', 'b/c', 'm', 'z.z'];
      for (const id of ids.slice(1)) await save(tenant, id, { manifest: manifest(id) });
      for (const limit of [1, 2, 3, 4, 200]) {
        const seen: string[] = [];
        for (let cursor: string | null = ''; cursor !== null;) {
          const path = `/v1/agents?limit=${limit}${cursor === '' ? '' : `&cursor=${cursor}`}`;
          const page: z.infer<typeof agentWire.agentList> = shaped(
            await tenant.request({ path }),
            200,
            agentWire.agentList,
          );
          expect(page.agents.length).toBeLessThanOrEqual(limit);
          seen.push(...page.agents.map(({ agentId }) => agentId));
          cursor = page.nextCursor;
        }
        expect(seen.toSorted()).toEqual(ids);
      }
    });

    test('an archived one opens no new session, old ones go on', async () => {
      const tenant = await newTenant(target());
      const session = await tenant.openSession('old');
      const raw = { method: 'DELETE', path: '/v1/agents/agent' };
      expect(shaped(await tenant.request(raw), 200, agentWire.agentArchived)).toEqual({
        agentId: 'agent',
        archived: true,
      });
      expect((await tenant.request(raw)).status).toBe(200);
      expect(shaped(await tenant.request({ path: '/v1/agents/agent' }), 200, agentWire.agent).archived).toBe(true);
      const open = { method: 'PUT', body: { agentId: 'agent' } };
      refused(await tenant.at(target().nodes[1]).request({ ...open, path: '/v1/sessions/new' }), 404, 'not_found');
      const { turnId } = await tenant.message('old', 'still there?');
      expect((await tenant.turnEnd('old', turnId)).type).toBe('turn.completed');
      const again = shaped(await tenant.request({ ...open, path: '/v1/sessions/old' }), 200, wire.session);
      expect(again.createdAt).toBe(session.createdAt);
    });

    test('what is not there', async () => {
      const tenant = await newTenant(target());
      refused(await tenant.request({ path: '/v1/agents/none' }), 404, 'not_found');
      refused(await tenant.request({ path: '/v1/agents/none/versions' }), 404, 'not_found');
      const { details } = refused(
        await tenant.request({ method: 'DELETE', path: '/v1/agents/none' }),
        404,
        'not_found',
      );
      expect(details).toBeUndefined();
    });

    test('a session keeps the manifest that it was created with', async () => {
      const tenant = await newTenant(target());
      const before = await tenant.openSession('kept');
      await save(tenant, 'agent', { manifest: manifest('Other.') });
      const after = await tenant.openSession('new');
      const kept = await tenant.session('kept');
      expect(kept).toMatchObject({ agentVersion: 1, manifestHash: before.manifestHash });
      expect(after.agentVersion).toBe(2);
    });

    test('a subject needs a scope for it', async () => {
      const tenant = await newTenant(target());
      const read = tenant.as('ann', 'agents:read');
      const none = tenant.as('ann', 'sessions:own');
      expect((await read.request({ path: '/v1/agents' })).status).toBe(200);
      const { details } = refused(await none.request({ path: '/v1/agents' }), 403, 'scope_required');
      expect(details).toEqual({ scopes: ['agents:read', 'agents:write'] });
      const put = { method: 'PUT', path: '/v1/agents/a', body: { manifest: manifest('A') } };
      expect(refused(await read.request(put), 403, 'scope_required').details).toEqual({ scopes: ['agents:write'] });
      expect((await tenant.as('ann', 'agents:write').request(put)).status).toBe(200);
    });
  });
}
