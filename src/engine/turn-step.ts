import type { CommandLoop } from '../commands/execute.ts';
import type { Repository } from '../commands/repository.ts';
import { decideTurn } from '../domain/session/decide.ts';
import type { SessionEvent } from '../domain/session/events.ts';
import type { SessionDraft, SessionState } from '../domain/session/state.ts';
import type { TurnContext } from '../domain/turn/context.ts';
import { optional } from '../domain/kernel/optional.ts';
import type { Clock } from '../lib/clock.ts';
import type { AggregateRef } from '../streams/subjects.ts';

export interface TurnStepDeps {
  readonly workerId: string;
  readonly loop: CommandLoop;
  readonly sessions: Repository<SessionState, SessionEvent>;
  readonly clock: Clock;
  /** Aborted when the worker stops: it then accepts no more work. */
  readonly stopping: AbortSignal;
}

/** Runs one input of the turn process through the command loop and returns what `step` made of it. */
export async function turnStep<R>(
  deps: TurnStepDeps,
  input: {
    readonly ref: AggregateRef;
    readonly causation: string;
    /** Claims that have expired by what is known outside the history. */
    readonly lapsed?: ReadonlySet<string> | undefined;
    /** Interactions whose sign-ins are done by what vaults show. */
    readonly signedIn?: ReadonlySet<string> | undefined;
  },
  step: (draft: SessionDraft, context: TurnContext) => R,
): Promise<R> {
  const outcome = await deps.loop.execute(deps.sessions, input.ref, {
    actor: `worker:${deps.workerId}`,
    causation: input.causation,
    urgent: true,
    decide: (state: SessionState) => {
      const nowMs = deps.clock();
      return decideTurn(state, nowMs, (draft) =>
        step(draft, {
          ...{ nowMs, jitter: Math.random(), workerId: deps.workerId, release: deps.stopping.aborted },
          ...optional({ lapsed: input.lapsed, signedIn: input.signedIn }),
        }),
      );
    },
  });
  if (outcome.kind === 'rejected') throw new Error(`a step of a turn was refused: ${outcome.code}`);
  return outcome.reply;
}
