import type { Manifest } from '#src/domain/agent/manifest.ts';
import type { CancelCommand, MessageCommand, MessageContext } from './domain/session/decide.ts';
import type { SessionOpening } from './domain/session/state.ts';
import type { SessionEvent } from './domain/session/events.ts';
import { NO_USAGE } from './domain/turn/usage.ts';
import type { Usage } from './domain/turn/usage.ts';
import { START_MS } from './given.ts';

/** Plain values for tests of the domain; each test says only what it is about. */
export const TURN = 'tu_01arz3ndektsv4rrffq69g5fav';
export const WORKER = 'wk_a';
export const OTHER_WORKER = 'wk_b';

export const MANIFEST: Manifest = { instructions: 'Be brief.', model: { provider: 'fixture', model: 'echo' } };

export function openCommand(change: Partial<SessionOpening> = {}): SessionOpening {
  return {
    agentId: 'agents/a',
    agentVersion: 1,
    manifestHash: 'h',
    manifest: MANIFEST,
    subject: null,
    info: {},
    labels: {},
    bodyHash: 'body',
    ...change,
  };
}

export function created(change: Partial<SessionOpening> = {}): SessionEvent {
  const command = openCommand(change);
  return { type: 'session.created', data: { ...command, info: { ...command.info }, labels: { ...command.labels } } };
}

export function message(change: Partial<MessageCommand> = {}): MessageCommand {
  return { requestId: 'r1', subject: null, content: 'Hello', ...change };
}

export function cancellation(change: Partial<CancelCommand> = {}): CancelCommand {
  return { requestId: 'r2', subject: null, ...change };
}

export function at(ms: number, change: Partial<MessageContext> = {}): MessageContext {
  return { nowMs: START_MS + ms, jitter: 1, newTurnId: TURN, workerId: WORKER, tenantModel: null, ...change };
}

export function usage(change: Partial<Usage> = {}): Usage {
  return {
    ...NO_USAGE,
    inputTokens: 10,
    outputTokens: 5,
    totalTokens: 15,
    costUsd: 0.25,
    tokensReported: true,
    costKnown: true,
    ...change,
  };
}
