import type { ArtifactEvent, ArtifactKind, ArtifactOwner } from '../../domain/artifact/events.ts';
import { evolveQuota, initialQuota } from '../../domain/quota/state.ts';
import type { QuotaState } from '../../domain/quota/state.ts';
import type { QuotaEvent } from '../../domain/quota/events.ts';
import type { EventMeta } from '../../domain/kernel/decision.ts';

/** An artifact as lists show it. */
export interface ArtifactView {
  readonly artifactId: string;
  readonly kind: ArtifactKind;
  readonly name: string;
  readonly contentType: string;
  readonly owner: ArtifactOwner | null;
  readonly latestVersion: number;
  readonly labels: Readonly<Record<string, string>>;
  readonly removed: boolean;
  readonly createdAt: string;
  readonly updatedAt: string;
}

export function evolveArtifactView(
  view: ArtifactView | undefined,
  event: ArtifactEvent,
  at: string,
): ArtifactView | undefined {
  if (event.type === 'artifact.stored') {
    const { version, ...data } = event.data;
    const { contentType } = version;
    return { ...data, contentType, latestVersion: 1, removed: false, createdAt: at, updatedAt: at };
  }
  if (view === undefined || view.removed) return view;
  switch (event.type) {
    case 'artifact.version_stored': {
      const { version: latestVersion, contentType } = event.data.version;
      return { ...view, latestVersion, contentType, updatedAt: at };
    }
    case 'artifact.removed':
      return { ...view, removed: true, updatedAt: at };
    case 'artifact.upload_abandoned':
      return view;
  }
}

/** Names of the objects that an event brings under an artifact's name. */
export function namedObjects(event: ArtifactEvent): readonly string[] {
  return event.type === 'artifact.stored' || event.type === 'artifact.version_stored' ? event.data.version.objects : [];
}

/** The account of a tenant's bytes, by the same rule as its fold. */
export type AccountView = QuotaState;

export function evolveAccountView(view: AccountView | undefined, event: QuotaEvent, meta: EventMeta): AccountView {
  return evolveQuota(view ?? initialQuota, event, meta);
}

/** When the first operation in progress is overdue; null: none. */
export function dueAt({ reservations, removals }: AccountView): string | null {
  const expiries = [...Object.values(reservations), ...Object.values(removals)].map(({ expiresAt }) => expiresAt);
  return expiries.toSorted().at(0) ?? null;
}
