import type { ArtifactEvent, ArtifactOwner } from '../../domain/artifact/events.ts';
import type { ArtifactState } from '../../domain/artifact/state.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import type { ArtifactLimits } from '../../domain/quota/decide.ts';
import type { QuotaEvent } from '../../domain/quota/events.ts';
import type { QuotaState } from '../../domain/quota/state.ts';
import type { SessionEvent } from '../../domain/session/events.ts';
import type { SessionState } from '../../domain/session/state.ts';
import type { ObjectStore } from '../../drivers/objects/port.ts';
import { timestamp } from '../../lib/clock.ts';
import type { Clock } from '../../lib/clock.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { CommandLoop } from '../execute.ts';
import type { Repository } from '../repository.ts';

/** What every use case of artifacts works with. */
export interface ArtifactDeps {
  readonly loop: CommandLoop;
  readonly artifacts: Repository<ArtifactState, ArtifactEvent>;
  readonly quotas: Repository<QuotaState, QuotaEvent>;
  readonly sessions: Repository<SessionState, SessionEvent>;
  readonly objects: ObjectStore;
  /** Limits of a tenant that has none of its own. */
  readonly defaults: ArtifactLimits;
  /** How long a silent operation is left alone, ms; its process renews it in time. */
  readonly operationMs: number;
  readonly clock: Clock;
  /** Called for an operation whose end is left to the reconciler (engine/artifact-reconciler.ts). */
  readonly onUnsettled: (error: unknown) => void;
}

/** Why the caller may not reach an artifact; null: it may. */
export type ArtifactReach = (owner: ArtifactOwner | null) => Rejection | null;

export function artifactRef(tenant: string, artifactId: string): AggregateRef {
  return { tenant, kind: 'artifact', id: artifactId };
}

/** The account of a tenant's stored bytes. */
export function quotaRef(tenant: string): AggregateRef {
  return { tenant, kind: 'quota', id: 'artifacts' };
}

export function expiryOf({ clock, operationMs }: ArtifactDeps): string {
  return timestamp(clock() + operationMs);
}
