import type { Action } from '../../domain/action/state.ts';
import type { Decision } from '../../domain/kernel/decision.ts';
import { reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { decideClaim, decideHeartbeat } from '../../domain/session/answer.ts';
import type { SessionEvent } from '../../domain/session/events.ts';
import type { OpenSession, SessionState } from '../../domain/session/state.ts';
import type { TurnContext } from '../../domain/turn/draft.ts';
import type { Clock } from '../../lib/clock.ts';
import { faultPoint } from '../../lib/fault-points.ts';
import { newId } from '../../lib/ids.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { CommandLoop, Executed } from '../execute.ts';
import type { Repository } from '../repository.ts';
import type { ActionPlaces, ExecutorOf } from './action-places.ts';

export interface HoldActionParts {
  readonly loop: CommandLoop;
  readonly sessions: Repository<SessionState, SessionEvent>;
  readonly places: ActionPlaces;
  readonly clock: Clock;
  /** How long a claim is good for without a heartbeat, ms. */
  readonly leaseMs: number;
}

export interface HoldActionInput {
  readonly executor: ExecutorOf;
  readonly actionId: string;
  readonly requestId: string;
  readonly actor: string;
}

/** An action that its executor holds now, and where it is. */
export interface HeldAction {
  readonly ref: AggregateRef;
  readonly session: OpenSession;
  readonly turnId: string;
  readonly action: Action;
}

export type Held = Executed<HeldAction> | Rejection;

/**
 * An executor takes an action: of any number of them, on any nodes, exactly one. The same request gets its claim again
 * for as long as that holds (wire contract, section 9).
 */
export async function claimAction(parts: HoldActionParts, input: HoldActionInput): Promise<Held> {
  const claimId = newId('cl');
  const { agentId } = input.executor;
  const held = await hold(parts, input, (state, context) =>
    decideClaim(state, { ...input, agentId, claimId }, context),
  );
  await faultPoint('action.claimed');
  return held;
}

/** An executor is still at an action: its lease lasts for another while. */
export async function keepAction(
  parts: HoldActionParts,
  input: HoldActionInput & { readonly claimId: string; readonly generation: number },
): Promise<Held> {
  const { agentId } = input.executor;
  return await hold(parts, input, (state, context) => decideHeartbeat(state, { ...input, agentId }, context));
}

async function hold(
  { loop, sessions, places, clock, leaseMs }: HoldActionParts,
  { executor, actionId, actor, requestId: causation }: HoldActionInput,
  decide: (state: SessionState, context: TurnContext) => Decision<SessionEvent, { readonly action: Action }>,
): Promise<Held> {
  const id = await places.sessionOf(executor, actionId);
  if (id === null) return notThere();
  const ref: AggregateRef = { tenant: executor.tenantId, kind: 'session', id };
  return await loop.execute<SessionState, SessionEvent, HeldAction>(sessions, ref, {
    actor,
    causation,
    decide: (state) => {
      if (state.status === 'absent') return notThere();
      const decision = decide(state, { nowMs: clock(), jitter: 0, workerId: null, leaseMs });
      if (decision.kind === 'rejected') return decision;
      const reply = { ref, session: state, turnId: state.turn?.turnId ?? '', action: decision.reply.action };
      return { ...decision, reply };
    },
  });
}

/** The same for one that is not there and for another agent's. */
function notThere(): Rejection {
  return reject('not_found', 'No such action.');
}
