import type { FastifyReply, FastifyRequest } from 'fastify';
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import { outOfReach } from '../../auth/caller.ts';
import { deleteFile, writeFile } from '../../commands/sandbox/change-sandbox.ts';
import { sandboxRef } from '../../commands/sandbox/deps.ts';
import { findFile, listFiles } from '../../commands/sandbox/files.ts';
import { sandboxAt } from '../../commands/sandbox/past-files.ts';
import { UNKNOWN_MEDIA_TYPE } from '../../domain/artifact/names.ts';
import { reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { mediaTypeOf } from '../../lib/media-type.ts';
import { sendBytes } from '../bytes.ts';
import { operations } from '../described.ts';
import type { Downloads } from '../downloads.ts';
import { callerOf } from '../gate.ts';
import { misplaced, placeOf, recordPlace } from '../history-place.ts';
import { accepted, refused } from '../problem.ts';
import { leaveBodies } from '../upload-body.ts';
import type { Uploads } from '../upload-body.ts';
import * as wire from '../wire/sandboxes.ts';
import { inputOf, reachedSandbox } from './sandboxes.ts';
import type { SandboxRouteDeps } from './sandboxes.ts';
import { sessionRef } from './sessions.ts';

const docs = operations('Sandboxes', {
  getSandboxTree: [
    'The files of a sandbox, by path',
    'Of one directory with `path`. With `sessionId` and `cursor`: those that a virtual sandbox had after the last call at or before that record, which are those of a fork there.',
  ],
  getSandboxFile: [
    'A file of a sandbox',
    'Ranges and entity tags as for artifacts. The slashes of the path may be sent as they are, or as %2F. `sessionId` and `cursor` as for the tree.',
  ],
  writeSandboxFile: [
    'Put a file into a sandbox',
    'The body is the file itself, 10 MiB at most. With a turn running: 409 sandbox_busy.',
  ],
  deleteSandboxFile: ['Take a file or a directory out of a sandbox', 'With a turn running: 409 sandbox_busy.'],
});

type FileReadDeps = SandboxRouteDeps & { readonly downloads: Downloads };

/** The files of a sandbox: after the newest call that changed something, or as they were at a record of a session. */
export function sandboxFileRoutes(deps: FileReadDeps): FastifyPluginAsyncZod {
  return async (app) => {
    const read = { rules: { access: ACCESS.readSandboxes } };
    app.get(
      '/v1/sandboxes/:sandboxId/tree',
      {
        config: read,
        schema: {
          ...docs.getSandboxTree,
          params: wire.sandboxPath,
          querystring: wire.treeQuery,
          response: { 200: wire.tree },
        },
      },
      async (request) => {
        const { sandboxId } = request.params;
        const { path: below, ...moment } = request.query;
        const reading = await readingOf(deps, request, { sandboxId, moment });
        const { files } = done(await listFiles(deps, { ...reading, under: below }));
        const shown = files.map(({ path, size, sha256 }) => ({ path, size, sha256, contentType: typeOf(path) }));
        return { sandboxId, files: shown };
      },
    );
    app.get(
      '/v1/sandboxes/:sandboxId/files/:path',
      {
        config: { ...read, sends: 'file' },
        schema: { ...docs.getSandboxFile, params: wire.filePath, querystring: wire.fileQuery },
      },
      async (request, reply) => await sendFile(deps, request, reply, { ...request.params, moment: request.query }),
    );
    app.get(
      '/v1/sandboxes/:sandboxId/files/*',
      { config: read, schema: { params: wire.deepFilePath, querystring: wire.fileQuery, hide: true } },
      async (request, reply) => {
        const { '*': path, sandboxId } = request.params;
        return await sendFile(deps, request, reply, { sandboxId, path, moment: request.query });
      },
    );
    await Promise.resolve();
  };
}

/** Puts files into a sandbox and takes them out, while no turn runs on it. */
export function sandboxWriteRoutes(deps: SandboxRouteDeps & { readonly uploads: Uploads }): FastifyPluginAsyncZod {
  return async (app) => {
    leaveBodies(app);
    const config = { rules: { access: ACCESS.writeSandboxes, rawBody: true as const } };
    const bodyLimit = Number.MAX_SAFE_INTEGER;
    const written = { 200: wire.fileWritten };
    app.put(
      '/v1/sandboxes/:sandboxId/files/:path',
      { config, bodyLimit, schema: { ...docs.writeSandboxFile, params: wire.filePath, response: written } },
      async (request) => await putFile(deps, request, request.params),
    );
    app.put(
      '/v1/sandboxes/:sandboxId/files/*',
      { config, bodyLimit, schema: { params: wire.deepFilePath, hide: true } },
      async (request) => {
        const { '*': path, sandboxId } = request.params;
        return await putFile(deps, request, { sandboxId, path });
      },
    );
    const remove = { rules: { access: ACCESS.writeSandboxes } };
    app.delete(
      '/v1/sandboxes/:sandboxId/files/:path',
      {
        config: remove,
        schema: { ...docs.deleteSandboxFile, params: wire.filePath, response: { 200: wire.fileDeleted } },
      },
      async (request) => await removeFile(deps, request, request.params),
    );
    app.delete(
      '/v1/sandboxes/:sandboxId/files/*',
      { config: remove, schema: { params: wire.deepFilePath, hide: true } },
      async (request) => {
        const { '*': path, sandboxId } = request.params;
        return await removeFile(deps, request, { sandboxId, path });
      },
    );
    await Promise.resolve();
  };
}

interface Place {
  readonly sandboxId: string;
  readonly path: string;
}

function typeOf(path: string): string {
  return mediaTypeOf(path) ?? UNKNOWN_MEDIA_TYPE;
}

interface Past {
  readonly sandboxId: string;
  readonly moment: wire.Moment;
}

async function readingOf(deps: SandboxRouteDeps, request: FastifyRequest, { sandboxId, moment }: Past) {
  const { tenant, actor, causation } = inputOf(request, sandboxId);
  const { state } = await reachedSandbox(deps, request, sandboxId);
  const meta = { actor, causation };
  const { sessionId, cursor } = moment;
  if (sessionId === undefined || cursor === undefined) return { tenant, state, meta };
  const caller = callerOf(request);
  const ref = sessionRef(caller, sessionId);
  const place = placeOf(ref, cursor);
  const past = await sandboxAt(deps, {
    ...{ sandboxId, state, ref, at: recordPlace(place) },
    outOfReach: (session) => outOfReach(caller, session),
    misplaced: (session) => misplaced(place, session),
  });
  return { tenant, state: done(past).state, meta };
}

/** @throws ProblemError */
function done<T extends { readonly kind: 'done' }>(outcome: T | Rejection): T {
  if (outcome.kind === 'rejected') throw refused(outcome);
  return outcome;
}

async function sendFile(
  deps: FileReadDeps,
  request: FastifyRequest,
  reply: FastifyReply,
  { path, ...past }: Past & Place,
): Promise<FastifyReply> {
  const { file } = done(await findFile(deps, { ...(await readingOf(deps, request, past)), path }));
  return await sendBytes(deps.downloads, request, reply, {
    name: path.slice(path.lastIndexOf('/') + 1),
    contentType: typeOf(path),
    of: callerOf(request).tenantId,
    size: file.size,
    sha256: file.sha256,
    open: file.open,
  });
}

async function putFile(
  deps: SandboxRouteDeps & { readonly uploads: Uploads },
  request: FastifyRequest,
  { sandboxId, path }: Place,
) {
  const { tenantId, subject } = callerOf(request);
  // Before a byte is read: no memory is used for a sandbox that is missing or not free.
  await reachedSandbox(deps, request, sandboxId);
  const { body, declaredBytes, signal, close } = deps.uploads.open(request.raw, { tenantId, subject });
  const limitBytes = deps.workspaceLimits.fileBytes;
  let free: (() => void) | null = null;
  try {
    refuseTooLarge(declaredBytes, limitBytes);
    // Not a byte is read before there is room for all that may come.
    free = await deps.uploads.memory(tenantId, declaredBytes ?? limitBytes, signal);
    const bytes = await collected(body, { limitBytes, signal });
    const outcome = accepted(await writeFile(deps, { ...inputOf(request, sandboxId), path, bytes }));
    await deps.freshness('sandboxes', sandboxRef(tenantId, sandboxId), outcome.position);
    return { path, size: bytes.length, sha256: outcome.reply };
  } finally {
    free?.();
    close();
  }
}

/** @throws ProblemError limit_exceeded */
function refuseTooLarge(bytes: number | null, limitBytes: number): void {
  if (bytes === null || bytes <= limitBytes) return;
  const message = `The file is larger than ${limitBytes} bytes, the limit of a file of a sandbox. Nothing was stored.`;
  throw refused(reject('limit_exceeded', message, { details: { limit: 'file', limitBytes } }));
}

/** @throws ProblemError limit_exceeded for a body longer than a file may be */
async function collected(
  body: AsyncIterable<Uint8Array>,
  { limitBytes, signal }: { readonly limitBytes: number; readonly signal: AbortSignal },
): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body) {
    signal.throwIfAborted();
    length += chunk.length;
    refuseTooLarge(length, limitBytes);
    chunks.push(chunk);
  }
  signal.throwIfAborted();
  return Buffer.concat(chunks);
}

async function removeFile(deps: SandboxRouteDeps, request: FastifyRequest, { sandboxId, path }: Place) {
  const outcome = accepted(await deleteFile(deps, { ...inputOf(request, sandboxId), path }));
  await deps.freshness('sandboxes', sandboxRef(callerOf(request).tenantId, sandboxId), outcome.position);
  return { path, deleted: true as const };
}
