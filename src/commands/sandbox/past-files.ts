import { reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import type { OpenSandbox } from '../../domain/sandbox/state.ts';
import type { RecordPlace } from '../../domain/session/fork-state.ts';
import type { OpenSession } from '../../domain/session/state.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { SandboxDeps } from './deps.ts';
import { filesAt } from './fork-files.ts';

export interface PastInput {
  readonly sandboxId: string;
  readonly state: OpenSandbox;
  /** The session whose history has the record. */
  readonly ref: AggregateRef;
  readonly at: RecordPlace;
  /** Why the caller may not reach the session; null: it may. */
  readonly outOfReach: (session: OpenSession) => Rejection | null;
  /** Why the place belongs to an earlier session with the same id; null: it belongs to this one. */
  readonly misplaced: (session: OpenSession) => Rejection | null;
}

/** A sandbox with the files that it had at a record of a session that works in it: those that a fork there begins with. */
export async function sandboxAt(
  deps: SandboxDeps,
  { sandboxId, state, ref, at, outOfReach, misplaced }: PastInput,
): Promise<{ readonly kind: 'done'; readonly state: OpenSandbox } | Rejection> {
  const { state: session } = await deps.sessions.refresh(ref);
  if (session.status === 'absent') return reject('not_found', 'No such session.');
  const refusal = outOfReach(session);
  if (refusal !== null) return refusal;
  if (session.sandbox?.sandboxId !== sandboxId) return reject('not_found', 'The session has another sandbox, or none.');
  if (state.machine !== null)
    return reject('invalid_request', 'What a pod had on its volume is not part of the history. Leave out the cursor.');
  return misplaced(session) ?? { kind: 'done', state: { ...state, files: await filesAt(deps, { ref, session }, at) } };
}
