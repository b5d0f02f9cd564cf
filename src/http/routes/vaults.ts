import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import { actorOf } from '../../auth/caller.ts';
import type { Caller } from '../../auth/caller.ts';
import { createVault, deleteVault, readVault, vaultRef } from '../../commands/vault/vaults.ts';
import type { CreateVaultDeps } from '../../commands/vault/vaults.ts';
import { isRejection } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { canonicalJson } from '../../lib/canonical-json.ts';
import type { EgressPolicy } from '../../lib/egress.ts';
import { sha256Hex } from '../../lib/hash.ts';
import { idOfRequest } from '../../lib/ids.ts';
import type { VaultQueries } from '../../projections/vaults/queries.ts';
import { operations } from '../described.ts';
import type { Freshness } from '../freshness.ts';
import { callerOf } from '../gate.ts';
import { ListRequest } from '../list-request.ts';
import { accepted, ProblemError, refused } from '../problem.ts';
import * as wire from '../wire/vaults.ts';

const docs = operations('Vaults', {
  createVault: [
    'Make a vault for a person',
    "Repeatable: the same idempotencyKey with the same body gives the same vault. As a subject it is one's own.",
  ],
  listVaults: ['List vaults, newest first', "A subject sees its own; an application all of them, or one person's."],
  deleteVaults: ['Delete all vaults of a person', 'Their credentials and secrets go with them.'],
  getVault: ['One vault'],
  deleteVault: ['Delete a vault', 'Its credentials and their secrets go with it.'],
});

export interface VaultRouteDeps extends CreateVaultDeps {
  readonly queries: VaultQueries;
  readonly freshness: Freshness;
  /** Which addresses this Host calls. */
  readonly egress: EgressPolicy;
}

/** Vaults: where the credentials of a person are kept, for the servers that the person's agents call. */
export function vaultRoutes(deps: VaultRouteDeps): FastifyPluginAsyncZod {
  const { freshness } = deps;
  return async (app) => {
    const config = { rules: { access: ACCESS.vaults } };
    app.post(
      '/v1/vaults',
      { config, schema: { ...docs.createVault, body: wire.createVaultBody, response: { 201: wire.vault } } },
      async (request, reply) => {
        const caller = callerOf(request);
        const { requestId, idempotencyKey, ...sent } = request.body;
        const { name, metadata = {} } = sent;
        const subject = subjectOf(caller, sent.subject);
        const ref = vaultRef(caller.tenantId, idOfRequest('va', caller.tenantId, caller.subject ?? '', idempotencyKey));
        const command = { name, subject, metadata, bodyHash: sha256Hex(canonicalJson({ name, subject, metadata })) };
        const meta = { actor: actorOf(caller), causation: requestId };
        const { of, position } = accepted(await createVault(deps, { ref, command, ...meta }));
        await freshness('vaults', ref, position);
        return await reply.code(201).send(toVaultResponse({ ...of, id: ref.id }));
      },
    );
    app.get(
      '/v1/vaults/:vaultId',
      { config, schema: { ...docs.getVault, params: wire.vaultPath, response: { 200: wire.vault } } },
      async (request) => {
        const { tenantId, subject } = callerOf(request);
        const ref = vaultRef(tenantId, request.params.vaultId);
        return toVaultResponse({ ...found(await readVault(deps, ref, subject)), id: ref.id });
      },
    );
    app.delete(
      '/v1/vaults/:vaultId',
      { config, schema: { ...docs.deleteVault, params: wire.vaultPath, response: { 200: wire.vaultDeleted } } },
      async (request) => {
        const caller = callerOf(request);
        const ref = vaultRef(caller.tenantId, request.params.vaultId);
        const meta = { actor: actorOf(caller), causation: request.id };
        const { position } = accepted(await deleteVault(deps, { ref, actsFor: caller.subject, ...meta }));
        await freshness('vaults', ref, position);
        return { id: ref.id, deleted: true as const };
      },
    );
    await app.register(listRoutes(deps));
  };
}

function listRoutes(deps: VaultRouteDeps): FastifyPluginAsyncZod {
  const { queries, freshness } = deps;
  return async (app) => {
    const config = { rules: { access: ACCESS.vaults } };
    app.get(
      '/v1/vaults',
      { config, schema: { ...docs.listVaults, querystring: wire.vaultListQuery, response: { 200: wire.vaultList } } },
      async (request) => {
        const caller = callerOf(request);
        const wanted = request.query.subject ?? null;
        // Another person's list is as empty as that of one without a vault.
        if (caller.subject !== null && wanted !== null && wanted !== caller.subject) {
          return { vaults: [], nextCursor: null };
        }
        const subject = caller.subject ?? wanted;
        const list = new ListRequest(`GET /v1/vaults ${caller.tenantId} ${subject ?? ''}`, request.query, 2);
        const rows = await queries.list(caller.tenantId, subject, { limit: list.wanted, after: list.after });
        const { entries, nextCursor } = list.page(rows, ({ createdAt, id }) => [createdAt, id]);
        return { vaults: entries.map(toVaultResponse), nextCursor };
      },
    );
    app.delete(
      '/v1/vaults',
      {
        config,
        schema: { ...docs.deleteVaults, querystring: wire.deleteVaultsQuery, response: { 200: wire.vaultsDeleted } },
      },
      async (request) => {
        const caller = callerOf(request);
        const subject = subjectOf(caller, request.query.subject);
        const meta = { actor: actorOf(caller), causation: request.id };
        let deleted = 0;
        for (let after: readonly string[] | null = null; ;) {
          const rows = await queries.list(caller.tenantId, subject, { limit: DELETED_AT_ONCE, after });
          for (const { id } of rows) {
            const ref = vaultRef(caller.tenantId, id);
            const outcome = await deleteVault(deps, { ref, actsFor: subject, ...meta });
            if (outcome.kind === 'done') deleted++;
            // Already gone: the list is behind.
            else if (outcome.code !== 'not_found') throw refused(outcome);
            await freshness('vaults', ref, outcome.kind === 'done' ? outcome.position : null);
          }
          const last = rows.at(-1);
          if (last === undefined || rows.length < DELETED_AT_ONCE) return { subject, deleted };
          after = [last.createdAt, last.id];
        }
      },
    );
    await Promise.resolve();
  };
}

const DELETED_AT_ONCE = 100;

/**
 * Whose vault it will be: the person's that the request is made for, or the one's that it names.
 * @throws ProblemError invalid_request
 */
function subjectOf(caller: Caller, sent: string | undefined): string {
  const subject = sent ?? caller.subject;
  if (subject !== null && (caller.subject === null || subject === caller.subject)) return subject;
  const message = subject === null ? 'is required' : 'must be the subject that the request acts for';
  throw new ProblemError({
    code: 'invalid_request',
    message: `subject ${message}.`,
    details: { issues: [{ path: 'subject', message }] },
  });
}

/** What was found, or throws the refusal. */
export function found<T extends object>(reached: T | Rejection): T {
  if (isRejection(reached)) throw refused(reached);
  return reached;
}

interface ShownVault {
  readonly id: string;
  readonly name: string;
  readonly subject: string;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly createdAt: string;
  readonly updatedAt: string;
}

function toVaultResponse({ id, name, subject, metadata, createdAt, updatedAt }: ShownVault) {
  return { id, name, subject, metadata: { ...metadata }, createdAt, updatedAt };
}
