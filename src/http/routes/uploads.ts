import type { FastifyRequest } from 'fastify';
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import { actorOf } from '../../auth/caller.ts';
import type { Caller } from '../../auth/caller.ts';
import { uploadArtifact } from '../../commands/artifact/upload.ts';
import type { Uploaded, UploadInput } from '../../commands/artifact/upload.ts';
import type { ArtifactOwner } from '../../domain/artifact/events.ts';
import { isMediaType, UNKNOWN_MEDIA_TYPE } from '../../domain/artifact/names.ts';
import { newArtifactRefusal } from '../../domain/session/artifacts.ts';
import { mediaTypeOf } from '../../lib/media-type.ts';
import { operations } from '../described.ts';
import { callerOf } from '../gate.ts';
import { accepted, ProblemError, refused, withinReach } from '../problem.ts';
import { leaveBodies, noMediaType } from '../upload-body.ts';
import { toArtifactResponse, toVersionResponse } from '../wire/artifact.ts';
import * as wire from '../wire/artifacts.ts';
import { reachOf, refOf } from './artifacts.ts';
import type { ArtifactRouteDeps } from './artifacts.ts';
import { sessionRef } from './sessions.ts';

const docs = operations('Artifacts', {
  uploadArtifact: [
    'Upload a file as a new artifact',
    "The body is the file itself, streamed; Content-Type is its media type (without one: by its name). As a subject, sessionId is required. Past the file's limit or the tenant's total: 413, and nothing is stored. A session has 10,000 artifacts in its life, deleted ones included; the next is refused with 409.",
  ],
  uploadArtifactVersion: ['Upload a file as a further version', 'The body is the file.'],
});

/** Files sent as raw bytes in one request, stored as they arrive. */
export function uploadRoutes(deps: ArtifactRouteDeps): FastifyPluginAsyncZod {
  return async (app) => {
    leaveBodies(app);
    const config = { rules: { access: ACCESS.artifacts, rawBody: true as const } };
    const bodyLimit = Number.MAX_SAFE_INTEGER;
    app.post(
      '/v1/artifacts',
      {
        config,
        bodyLimit,
        schema: { ...docs.uploadArtifact, querystring: wire.uploadQuery, response: { 201: wire.uploaded } },
      },
      async (request, reply) => {
        const sent = sentType(request.headers['content-type']);
        const { name, sessionId, label: labels } = request.query;
        const owner = await ownerOf(deps, callerOf(request), sessionId);
        return await reply
          .code(201)
          .send(answerOf(await take(deps, request, { sent, target: { kind: 'new', name, owner, labels } })));
      },
    );
    app.post(
      '/v1/artifacts/:artifactId/versions',
      {
        config,
        bodyLimit,
        schema: { ...docs.uploadArtifactVersion, params: wire.artifactPath, response: { 201: wire.uploaded } },
      },
      async (request, reply) => {
        const sent = sentType(request.headers['content-type']);
        const outOfReach = reachOf(callerOf(request));
        const { artifactId } = request.params;
        return await reply
          .code(201)
          .send(answerOf(await take(deps, request, { sent, target: { kind: 'version', artifactId, outOfReach } })));
      },
    );
    await Promise.resolve();
  };
}

async function take(
  deps: ArtifactRouteDeps,
  request: FastifyRequest,
  { sent, target }: { readonly sent: string | null; readonly target: UploadInput['target'] },
): Promise<Uploaded> {
  const caller = callerOf(request);
  const tenant = caller.tenantId;
  const { body, signal, declaredBytes, close } = deps.uploads.open(request.raw, {
    tenantId: tenant,
    subject: caller.subject,
  });
  const outcome = accepted(
    await uploadArtifact(deps, {
      tenant,
      target,
      body,
      signal,
      declaredBytes,
      contentTypeOf: (name) => sent ?? mediaTypeOf(name) ?? UNKNOWN_MEDIA_TYPE,
      actor: actorOf(caller),
      causation: request.id,
    }).finally(close),
  );
  await deps.freshness('artifacts', refOf(caller, outcome.artifact.artifactId), outcome.position);
  return outcome;
}

/** @throws ProblemError invalid_request for a header that is not a media type */
function sentType(header: string | undefined): string | null {
  if (header === undefined || header.trim() === '') return null;
  if (isMediaType(header)) return header;
  throw noMediaType();
}

/**
 * The session that the file will belong to.
 * @throws ProblemError invalid_request when a person's file would belong to no session; not_found; not_granted;
 *   limit_exceeded
 */
async function ownerOf(
  deps: ArtifactRouteDeps,
  caller: Caller,
  sessionId: string | undefined,
): Promise<ArtifactOwner | null> {
  if (sessionId === undefined) {
    if (caller.subject === null) return null;
    const issues = [{ path: 'querystring.sessionId', message: 'is required for a subject' }];
    const message = "Acting for a person, name one of that person's sessions in sessionId.";
    throw new ProblemError({ code: 'invalid_request', message, details: { issues } });
  }
  const { state } = await deps.sessions.refresh(sessionRef(caller, sessionId));
  const session = withinReach(caller, state.status === 'absent' ? null : state);
  const refusal = newArtifactRefusal(session);
  if (refusal !== null) throw refused(refusal);
  const { createdPosition: sessionPosition, subject, agentId } = session;
  return { sessionId, sessionPosition, subject, agentId };
}

function answerOf({ artifact, version }: Uploaded) {
  const stored = artifact.versions[version - 1];
  if (stored === undefined) throw new Error('an upload names the version that it stored');
  // Others may have stored versions since; the answer is of this upload.
  const artifactThen = { ...artifact, versions: artifact.versions.slice(0, version), updatedAt: stored.createdAt };
  return { artifact: toArtifactResponse(artifactThen), version: toVersionResponse(stored) };
}
