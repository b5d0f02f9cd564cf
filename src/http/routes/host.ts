import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import { callerOf, PROTOCOL } from '../gate.ts';
import * as wire from '../wire/schemas.ts';

/** What readiness rests on; a detail never shows addresses or secrets. */
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

export interface HostRouteParts {
  readonly service: string;
  readonly version: string;
  readonly features: readonly string[];
  readonly checks: () => Promise<Checks>;
}

/** Liveness, readiness, and who the caller is. */
export function hostRoutes({ service, version, features, checks }: HostRouteParts): FastifyPluginAsyncZod {
  return async (app) => {
    const open = { rules: { access: null } };
    const protocol = { ...PROTOCOL, features: [...features] };
    app.get('/health', { config: open, schema: { response: { 200: wire.health } } }, () => {
      return { status: 'ok' as const, service, version, protocol };
    });
    app.get(
      '/ready',
      { config: open, schema: { response: { 200: wire.ready, 503: wire.ready } } },
      async (_request, reply) => {
        const found = await checks();
        const ok = Object.values(found).every((check: Check) => check.ok);
        return await reply.code(ok ? 200 : 503).send({ status: ok ? 'ready' : 'not_ready', checks: found });
      },
    );
    app.get(
      '/v1/me',
      { config: { rules: { access: ACCESS.me } }, schema: { response: { 200: wire.me } } },
      (request) => {
        const { kind, principalId, subject, scopes } = callerOf(request);
        const none = kind === 'management';
        const via =
          kind === 'management'
            ? `management:${principalId}`
            : subject === null
              ? `application:${principalId}`
              : 'subject';
        return {
          ...(subject === null ? {} : { subject }),
          scopes: none ? [] : [...scopes],
          agents: none ? [] : ('*' as const),
          via,
        };
      },
    );
    await Promise.resolve();
  };
}
