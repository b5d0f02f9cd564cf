import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import type { Caller } from '../../auth/caller.ts';
import { operations } from '../described.ts';
import { callerOf, PROTOCOL } from '../gate.ts';
import * as wire from '../wire/schemas.ts';
import { withoutNulls } from '../../domain/kernel/optional.ts';

const docs = operations('Host', {
  getHealth: ['Whether the process is alive, and which protocol it speaks', 'Needs no credential.'],
  getReadiness: ['Whether everything that it needs can be reached', 'Needs no credential.'],
  getCaller: ['What the calling credential is'],
});

/** What readiness depends on; detail never shows addresses or secrets. */
export interface Checks {
  readonly database: Check;
  readonly engine: Check;
  readonly streams: Check;
  readonly objects: Check;
}

export interface Check {
  readonly ok: boolean;
  readonly detail?: string;
}

export interface HostRouteDeps {
  readonly service: string;
  readonly version: string;
  readonly features: readonly string[];
  readonly checks: () => Promise<Checks>;
  /** The node is about to stop: a load balancer that asks whether it is ready should send the next request elsewhere. */
  readonly isLeaving: () => boolean;
}

/** Liveness, readiness, and who the caller is. */
export function hostRoutes({ service, version, features, checks, isLeaving }: HostRouteDeps): FastifyPluginAsyncZod {
  return async (app) => {
    const open = { rules: { access: null } };
    const protocol = { ...PROTOCOL, features: [...features] };
    app.get('/health', { config: open, schema: { ...docs.getHealth, response: { 200: wire.health } } }, () => {
      return { status: 'ok' as const, service, version, protocol };
    });
    app.get(
      '/ready',
      { config: open, schema: { ...docs.getReadiness, response: { 200: wire.ready, 503: wire.ready } } },
      async (_request, reply) => {
        const found = await checks();
        const ok = !isLeaving() && Object.values(found).every((check: Check) => check.ok);
        return await reply.code(ok ? 200 : 503).send({ status: ok ? 'ready' : 'not_ready', checks: found });
      },
    );
    app.get(
      '/v1/me',
      { config: { rules: { access: ACCESS.me } }, schema: { ...docs.getCaller, response: { 200: wire.me } } },
      (request) => {
        const caller = callerOf(request);
        const { kind, subject, scopes, agents, sandboxes } = caller;
        return {
          ...withoutNulls({ subject }),
          scopes: [...scopes],
          agents: kind === 'management' ? [] : agents === null ? ('*' as const) : [...agents],
          ...withoutNulls({ sandboxes: sandboxes && [...sandboxes] }),
          via: viaOf(caller),
        };
      },
    );
    await Promise.resolve();
  };
}

function viaOf({ kind, principalId, subject }: Caller): string {
  if (kind === 'management' || kind === 'issuer') return `${kind}:${principalId}`;
  return subject === null ? `application:${principalId}` : 'subject';
}
