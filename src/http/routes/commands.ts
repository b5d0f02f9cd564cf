import type { FastifyRequest } from 'fastify';
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS, requireScope } from '../../auth/authorize.ts';
import { actorOf, artifactOutOfReach, outOfReach } from '../../auth/caller.ts';
import type { Caller } from '../../auth/caller.ts';
import { sendCommand } from '../../commands/session/send-command.ts';
import type { SendCommandDeps, SessionCommand } from '../../commands/session/command-handler.ts';
import { reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import type { OpenSession } from '../../domain/session/state.ts';
import { canonicalJson } from '../../lib/canonical-json.ts';
import type { EgressPolicy } from '../../lib/egress.ts';
import { sha256Hex } from '../../lib/hash.ts';
import { requireCallableServers } from '../callable.ts';
import { operations } from '../described.ts';
import { callerOf } from '../gate.ts';
import { accepted, ProblemError, refused, requireAgentsOf } from '../problem.ts';
import { commandBody } from '../wire/commands.ts';
import type { CommandBody } from '../wire/commands.ts';
import { commandAccepted, sessionPath } from '../wire/schemas.ts';
import { sessionRef } from './sessions.ts';

const docs = operations('Sessions', {
  sendCommand: [
    'Send a command; a message starts a turn',
    'Accepted means durable. The same idempotencyKey with the same body gives the first answer again, for as long as the session exists. For a subject, a message with a manifest needs agents:write besides: 403 scope_required.',
  ],
});

export interface CommandRouteDeps extends SendCommandDeps {
  /** What addresses of MCP servers are checked against. */
  readonly egress: EgressPolicy;
}

/** Commands on a session: accepted means durable. */
export function commandRoutes(deps: CommandRouteDeps): FastifyPluginAsyncZod {
  return async (app) => {
    const config = { rules: { access: ACCESS.commands } };
    app.post(
      '/v1/sessions/:sessionId/commands',
      {
        config,
        schema: {
          ...docs.sendCommand,
          params: sessionPath,
          body: commandBody,
          response: { 202: commandAccepted },
        },
      },
      async (request, reply) => {
        const caller = callerOf(request);
        refuseOtherRole(caller, request.body);
        if (request.body.type === 'message') {
          refuseManifest(caller, request.body);
          requireAgentsOf(caller, request.body.manifest ?? {});
          requireCallableServers(deps.egress, request.body.manifest);
        }
        const { requestId: _, ...hashed } = request.body;
        const outcome = accepted(
          await sendCommand(deps, {
            ref: sessionRef(caller, request.params.sessionId),
            command: toCommand(request.body, caller, traceOf(request)),
            idempotencyKey: request.body.idempotencyKey,
            bodyHash: sha256Hex(canonicalJson(hashed)),
            actor: actorOf(caller),
            outOfReach: (session, isRepetition) => beyondReach(caller, request.body, { session, isRepetition }),
            fileOutOfReach: (owner) => artifactOutOfReach(caller, owner),
          }),
        );
        const { turnId, cursor, requestId } = outcome;
        return await reply.code(202).send({ status: 'accepted', turnId, cursor, requestId });
      },
    );
    await Promise.resolve();
  };
}

/** The sender's trace (W3C Trace Context); a malformed one counts as absent. */
function traceOf({ headers: { traceparent } }: FastifyRequest): string | undefined {
  if (typeof traceparent !== 'string') return undefined;
  const [, traceId = '', spanId = ''] = /^00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}$/.exec(traceparent) ?? [];
  return /[^0]/.test(traceId) && /[^0]/.test(spanId) ? traceparent : undefined;
}

function toCommand(
  body: CommandBody,
  { subject, principalId }: Caller,
  traceparent: string | undefined,
): SessionCommand {
  switch (body.type) {
    case 'message': {
      const { idempotencyKey: _, ...message } = body;
      return { ...message, subject, traceparent };
    }
    case 'cancel': {
      const { idempotencyKey: _, ...cancel } = body;
      return { ...cancel, subject };
    }
    case 'retry': {
      const { idempotencyKey: _, ...retry } = body;
      return { ...retry, subject, traceparent };
    }
    case 'approve': {
      const { idempotencyKey: _, ...approve } = body;
      return { ...approve, subject };
    }
    case 'respond': {
      const { idempotencyKey: _, ...respond } = body;
      return { ...respond, subject };
    }
    case 'action_result':
      return { ...body, agentId: principalId, outcomeHash: sha256Hex(canonicalJson(body.outcome)) };
  }
}

/**
 * The kind of a command belongs to the role of its sender: results are an executor's, a management key may only answer,
 * all else is everyone else's.
 * @throws ProblemError key_role_mismatch
 */
function refuseOtherRole({ kind }: Caller, { type }: CommandBody): void {
  if (kind === 'management' && type !== 'respond') throw refused(notManaged());
  if ((kind === 'executor') === (type === 'action_result')) return;
  const message =
    kind === 'executor'
      ? 'An executor credential may send action_result only; use an application key.'
      : 'Only the executor credential of the agent may send action_result.';
  throw new ProblemError({ code: 'key_role_mismatch', message });
}

/**
 * A manifest of a message's own could leave out what the agent asks approval for, so a person needs the scope for it.
 * @throws ProblemError scope_required
 */
function refuseManifest(caller: Caller, { manifest }: CommandBody & { readonly type: 'message' }): void {
  const refusal = manifest === undefined ? null : requireScope(caller, 'agents:write', 'a manifest in a message');
  if (refusal !== null) throw new ProblemError(refusal);
}

/**
 * Why the session is out of reach for this command. A management key answers questions about budgets, and nothing else
 * of a session. The sender of a repeated command has reached it, whatever it waits for now.
 */
function beyondReach(
  caller: Caller,
  body: CommandBody,
  { session, isRepetition }: { readonly session: OpenSession; readonly isRepetition: boolean },
): Rejection | null {
  const { kind } = caller;
  if (isRepetition && (kind === 'executor' || kind === 'management')) return null;
  const refusal = outOfReach(caller, session);
  if (refusal !== null || kind !== 'management' || body.type !== 'respond') return refusal;
  return session.turn?.work.interactions[body.interactionId]?.budgetId === undefined ? notManaged() : null;
}

function notManaged(): Rejection {
  const message = 'A management key may respond to a question about a budget only; use an application key.';
  return reject('key_role_mismatch', message);
}
