import type { z } from 'zod';
import { optional } from '../../domain/kernel/optional.ts';
import type { OpenSession } from '../../domain/session/state.ts';
import { lastInherited, viewOfTurn } from '../../projections/sessions/views.ts';
import type { SessionView } from '../../projections/sessions/views.ts';
import { encodeCursor } from '../../streams/cursor.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { session } from './schemas.ts';

type SessionResponse = z.input<typeof session>;

/** A session as its routes show it, members in the documented order. */
export function toSessionResponse(
  ref: AggregateRef,
  view: Omit<SessionView, 'createdPosition' | 'busy' | 'origin'>,
): SessionResponse {
  const { id, agentId, agentVersion, manifestHash, subject, status, activeTurnId, lastTurn, usage, last } = view;
  return {
    id,
    agentId,
    agentVersion,
    manifestHash,
    subject,
    status,
    activeTurnId,
    lastTurn,
    labels: { ...view.labels },
    info: { ...view.info },
    vaultIds: [...(view.vaultIds ?? [])],
    sandboxId: view.sandboxId ?? null,
    waits: view.waits.map((wait) => ({ ...wait })),
    usage,
    cursor: last === null ? null : encodeCursor(ref, last),
    createdAt: view.createdAt,
    updatedAt: view.updatedAt,
  };
}

/** The same from the fold that a command was decided on: the answer of a write does not wait for a read model. */
export function stateToResponse(ref: AggregateRef, shard: number, state: OpenSession): SessionResponse {
  const { turn, last, origin, sandbox, ...rest } = state;
  return toSessionResponse(ref, {
    ...rest,
    id: ref.id,
    ...viewOfTurn(turn),
    ...optional({ sandboxId: sandbox?.sandboxId }),
    last: last === null ? lastInherited(origin, rest.createdPosition) : { ...last, shard },
  });
}
