import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import * as wire from '#src/http/wire/executors.ts';
import { TenantClient } from '../../support/client.ts';
import type { Answer } from '../../support/client.ts';
import type { CredentialWorld, ExecutorTokens } from './credentials.ts';
import { ROUTES } from './routes.ts';
import { fresh, refused, shaped } from './target.ts';

const tokenOf = (what: string): string => `${what}-${randomUUID()}`;

/** Registers executors for whole credentials of every fate. */
export async function makeExecutors(tenant: TenantClient, foreign: TenantClient): Promise<ExecutorTokens> {
  const tokens = {
    ...{ right: tokenOf('right'), other: tokenOf('other'), rotated: tokenOf('rotated') },
    ...{ deleted: tokenOf('deleted'), foreign: tokenOf('foreign') },
  };
  const put = async (client: TenantClient, executors: readonly object[]): Promise<void> => {
    const answer = await client.request({ method: 'PUT', path: '/v1/executors', body: { executors } });
    shaped(answer, 200, wire.executorsSaved);
  };
  for (const agentId of ['other', 'gone']) await tenant.saveAgent(agentId);
  await put(tenant, [
    { agentId: 'agent', token: tokens.rotated },
    { agentId: 'other', token: tokens.other },
    { agentId: 'gone', token: tokens.deleted },
  ]);
  await put(tenant, [{ agentId: 'agent', token: tokens.right }]);
  await tenant.request({ method: 'DELETE', path: '/v1/executors/gone' });
  await put(foreign, [{ agentId: 'agent', token: tokens.foreign }]);
  return tokens;
}

/** What an executor reaches of what is in its tenant: results of its agent's sessions, and nothing else. */
export function executorReach(place: () => { readonly world: CredentialWorld; readonly url: string }): void {
  describe('the commands of an executor', () => {
    const bodies = (ROUTES['POST /v1/sessions/{sessionId}/commands']?.bodies ?? []).map(({ whole }) => whole);
    const result = bodies.find(({ type }) => type === 'action_result');

    async function send(key: string, session: string, body: unknown): Promise<Answer> {
      const tenant = new TenantClient({ ...place().world.tenant.credentials, key });
      const path = `/v1/sessions/${session}/commands`;
      return await tenant.request({ method: 'POST', path, body, headers: { 'x-request-id': 'same' } });
    }

    test('are results only, whatever the session', async () => {
      const { executors } = place().world;
      const others = bodies.filter(({ type }) => type !== 'action_result');
      expect(new Set(others.map(({ type }) => type))).toEqual(
        new Set(['message', 'cancel', 'retry', 'approve', 'respond']),
      );
      for (const body of others) {
        for (const session of ['anns-room', 'absent']) {
          for (const token of [executors.right, executors.other]) {
            refused(await send(token, session, body), 403, 'key_role_mismatch');
          }
        }
      }
      expect(await place().world.tenant.items('anns-room')).toEqual([]);
    });

    test('results are an executor’s only', async () => {
      const { tenant, studioKey } = place().world;
      for (const key of [tenant.credentials.key, studioKey]) {
        for (const session of ['anns-room', 'absent']) {
          const { message } = refused(await send(key, session, result), 403, 'key_role_mismatch');
          expect(message).toContain('executor');
        }
      }
    });

    test('a result without a claim is stale in a session of its agent', async () => {
      const answer = await send(place().world.executors.right, 'anns-room', result);
      expect(refused(answer, 409, 'claim_stale').message).toContain('claim another');
    });

    test("another agent's session is as one that is not there", async () => {
      const { tenant, executors } = place().world;
      const theirs = fresh('theirs');
      await tenant.openSession(theirs, { agentId: 'other' });
      for (const [token, session] of [
        [executors.right, theirs],
        [executors.other, 'anns-room'],
      ] as const) {
        const foreign = await send(token, session, result);
        refused(foreign, 404, 'not_found');
        expect(foreign.text).toBe((await send(token, 'absent', result)).text);
      }
      refused(await send(executors.other, theirs, result), 409, 'claim_stale');
    });

    test('an executor is not told who it is', async () => {
      const tenant = new TenantClient({ ...place().world.tenant.credentials, key: place().world.executors.right });
      const { message } = refused(await tenant.request({ path: '/v1/me' }), 403, 'key_role_mismatch');
      expect(message).not.toContain('executor');
    });
  });
}
