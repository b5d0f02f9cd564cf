import type { ArtifactEvent } from '../../domain/artifact/events.ts';
import type { ArtifactState } from '../../domain/artifact/state.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import type { MessagePart } from '../../domain/session/events.ts';
import type { ArtifactReach } from '../artifact/deps.ts';
import { findArtifact, versionOf } from '../artifact/read.ts';
import type { Repository } from '../repository.ts';

/** A part of a message as it is sent: without a version, a file means the newest one. */
export type SentPart =
  | Extract<MessagePart, { type: 'text' }>
  | { readonly type: 'file'; readonly artifactId: string; readonly version?: number | undefined };

export interface ResolvedParts {
  readonly kind: 'done';
  /** Absent: the message has none. */
  readonly parts: readonly MessagePart[] | undefined;
}

/** Finds the version of each file that a message names, as it is now; what comes later does not change the message. */
export async function resolveParts(
  artifacts: Repository<ArtifactState, ArtifactEvent>,
  tenant: string,
  message: { readonly parts: readonly SentPart[] | undefined; readonly outOfReach: ArtifactReach },
): Promise<ResolvedParts | Rejection> {
  if (message.parts === undefined) return { kind: 'done', parts: undefined };
  const resolved: MessagePart[] = [];
  for (const part of message.parts) {
    if (part.type === 'text') {
      resolved.push(part);
      continue;
    }
    const { artifactId, version = 'latest' } = part;
    const found = await findArtifact({ artifacts }, { tenant, artifactId, outOfReach: message.outOfReach });
    const one = found.kind === 'rejected' ? found : versionOf(found, String(version));
    if (one.kind === 'rejected') return one;
    resolved.push({ type: 'file', artifactId, version: one.version.version });
  }
  return { kind: 'done', parts: resolved };
}
