import { z } from 'zod';
import { sessionEventSchemas } from '../../domain/session/events.ts';
import { timestamp } from './parts.ts';

/**
 * The records of a session's history, a shape for each type. A payload is what `toCanonical` shows of the event: the shape
 * of the event in the log without what belongs to the record itself, or is internal.
 */
const of = sessionEventSchemas;
const turnId = true;

export const PAYLOADS = {
  'command.message': of['command.message'].omit({ turnId, traceparent: true }),
  'command.approve': of['command.approve'].omit({ turnId }),
  'command.respond': of['command.respond'].omit({ turnId }),
  'command.cancel': of['command.cancel'].omit({ turnId, namedTurnId: true }).extend({ turnId: z.string().optional() }),
  'command.retry': of['command.retry'].omit({ turnId }),
  'message.assistant': of['message.assistant'].omit({ turnId, step: true, thinking: true }),
  'action.pending': of['action.pending']
    .omit({ turnId, agentId: true, resume: true })
    .extend({ kind: z.enum(['tool', 'hook', 'mcp']) }),
  'action.claimed': of['action.claimed'].pick({ actionId: true, generation: true, agent: true }),
  'action.completed': of['action.completed'].omit({ turnId, generation: true, files: true }),
  'action.uncertain': of['action.uncertain'].omit({ turnId }),
  'effect.uncertain': of['effect.uncertain'].omit({ turnId, callId: true, agentId: true, toolName: true }),
  'mcp.state': of['mcp.state'].omit({ turnId, agentId: true }),
  'sandbox.state': of['sandbox.state'].omit({ turnId }),
  'sandbox.exec': of['sandbox.exec'].omit({ turnId, callId: true, files: true, earlier: true }),
  'delegation.started': of['delegation.started'].omit({ turnId }),
  'delegation.completed': of['delegation.completed'].omit({ turnId }),
  'turn.paused': of['turn.paused'].omit({ turnId }),
  'turn.waiting': of['turn.waiting'].omit({ turnId }),
  'turn.uncertain': of['turn.uncertain'].omit({ turnId }),
  'turn.completed': of['turn.completed'].omit({ turnId }),
  'turn.failed': of['turn.failed'].omit({ turnId }),
  'turn.cancelled': of['turn.cancelled'].omit({ turnId }),
  'artifact.created': of['artifact.created'].omit({ turnId }),
  'artifact.deleted': of['artifact.deleted'].omit({ turnId }),
} as const;

const envelope = {
  eventId: z.string(),
  sessionId: z.string(),
  turnId: z.string().nullable(),
  cursor: z.string(),
  createdAt: timestamp,
};

type Type = keyof typeof PAYLOADS;

/** A record of one type, under a name of its own in the document: `turn.completed` is `TurnCompleted`. */
function recordOf<T extends Type>(type: T) {
  const id = type.replaceAll(/(?:^|\.)(\w)/g, (_, letter: string) => letter.toUpperCase());
  return z.object({ ...envelope, type: z.literal(type), payload: PAYLOADS[type] }).meta({ id });
}

/** One entry of a session's history, as pages and streams show it; later versions may add types. */
export const record = z
  .discriminatedUnion('type', [
    recordOf('command.message'),
    recordOf('command.approve'),
    recordOf('command.respond'),
    recordOf('command.cancel'),
    recordOf('command.retry'),
    recordOf('message.assistant'),
    recordOf('action.pending'),
    recordOf('action.claimed'),
    recordOf('action.completed'),
    recordOf('action.uncertain'),
    recordOf('effect.uncertain'),
    recordOf('mcp.state'),
    recordOf('sandbox.state'),
    recordOf('sandbox.exec'),
    recordOf('delegation.started'),
    recordOf('delegation.completed'),
    recordOf('turn.paused'),
    recordOf('turn.waiting'),
    recordOf('turn.uncertain'),
    recordOf('turn.completed'),
    recordOf('turn.failed'),
    recordOf('turn.cancelled'),
    recordOf('artifact.created'),
    recordOf('artifact.deleted'),
  ])
  .meta({ id: 'EventRecord' });
