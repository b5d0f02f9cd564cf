import type { Rejection } from '../../domain/kernel/rejection.ts';
import { decideDeleteSession } from '../../domain/session/decide.ts';
import type { SessionEvent, SessionSandbox } from '../../domain/session/events.ts';
import type { ForkRef } from '../../domain/session/fork-events.ts';
import type { SessionState } from '../../domain/session/state.ts';
import { faultPoint } from '../../lib/fault-points.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { CommandLoop, Executed } from '../execute.ts';
import type { Repository } from '../repository.ts';
import type { SessionSandboxes } from '../sandbox/session-sandbox.ts';
import { releaseFork, settleForks } from './forks.ts';

export interface DeleteSessionDeps {
  readonly loop: CommandLoop;
  readonly sessions: Repository<SessionState, SessionEvent>;
  readonly sandboxes: SessionSandboxes;
}

export interface DeleteSessionInput {
  readonly ref: AggregateRef;
  readonly actor: string;
  readonly requestId: string;
  /** Why the caller may not reach the session; null: it may. */
  readonly outOfReach: (session: { readonly subject: string | null; readonly agentId: string }) => Rejection | null;
}

/**
 * Deletes a session that has no active turn and no forks. Its commits are removed from the log when the stream's
 * dispatcher has seen the deletion, on whatever node and however often.
 */
export async function deleteSession(
  deps: DeleteSessionDeps,
  { ref, actor, requestId, outOfReach }: DeleteSessionInput,
): Promise<Executed<ForkRef | null> | Rejection> {
  const { loop, sessions } = deps;
  const meta = { actor, causation: requestId };
  let sandbox: SessionSandbox | undefined;
  const once = async () => {
    const { state, position } = await sessions.load(ref);
    sandbox = state.status === 'open' ? state.sandbox : undefined;
    if (state.status === 'open' && outOfReach(state) === null) await settleForks(deps, ref, meta);
    const outcome = await loop.execute(sessions, ref, {
      ...meta,
      decide: (now) => (now.status === 'absent' ? null : outOfReach(now)) ?? decideDeleteSession(now),
    });
    // A refusal has brought the fold up to date, and it may know of forks that were promised elsewhere and do not
    // exist.
    const hadAll = outcome.kind === 'done' || (await sessions.load(ref)).position === position;
    return { outcome, hadAll };
  };
  const first = await once();
  const { outcome } = first.hadAll ? first : await once();
  if (outcome.kind === 'rejected') return outcome;
  await faultPoint('session.deleted');
  if (sandbox !== undefined) {
    // If this process dies first, the sandbox is found by the walk for orphans (engine/workspace-sweeper.ts).
    await deps.sandboxes.leave({ tenant: ref.tenant, sessionId: ref.id, sandbox, ...meta });
  }
  if (outcome.reply === null) return outcome;
  await faultPoint('session.fork-deleted');
  await releaseFork(deps, ref, { parent: outcome.reply, meta });
  return outcome;
}
