import mime from 'mime';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import { deleteFile, writeFile } from '../../commands/sandbox/change-sandbox.ts';
import { sandboxRef } from '../../commands/sandbox/deps.ts';
import { UNKNOWN_MEDIA_TYPE } from '../../domain/artifact/names.ts';
import { reject } from '../../domain/kernel/rejection.ts';
import { fileAt } from '../../domain/sandbox/manifest.ts';
import type { WorkspaceFile } from '../../domain/sandbox/manifest.ts';
import { sendBytes } from '../bytes.ts';
import { operations } from '../described.ts';
import { callerOf } from '../gate.ts';
import { accepted, refused } from '../problem.ts';
import type { Uploads } from '../upload-body.ts';
import * as wire from '../wire/sandboxes.ts';
import { inputOf, reachedSandbox } from './sandboxes.ts';
import type { SandboxRouteDeps } from './sandboxes.ts';

const docs = operations('Sandboxes', {
  getSandboxTree: ['The files of a sandbox, by path', 'Of one directory with `path`.'],
  getSandboxFile: [
    'A file of a sandbox',
    'Ranges and entity tags as for artifacts. The slashes of the path may be sent as they are, or as %2F.',
  ],
  writeSandboxFile: [
    'Put a file into a sandbox',
    'The body is the file itself, 10 MiB at most. With a turn running: 409 sandbox_busy.',
  ],
  deleteSandboxFile: ['Take a file or a directory out of a sandbox', 'With a turn running: 409 sandbox_busy.'],
});

/** The files of a sandbox as they are now: after the newest call that changed something. */
export function sandboxFileRoutes(deps: SandboxRouteDeps): FastifyPluginAsyncZod {
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
        const { path: below } = request.query;
        const files = (await filesOf(deps, request, sandboxId)).files.filter(
          ({ path }) => below === undefined || path === below || path.startsWith(`${below}/`),
        );
        return { sandboxId, files: files.map(({ mode: _mode, ...file }) => ({ ...file, contentType: typeOf(file) })) };
      },
    );
    app.get(
      '/v1/sandboxes/:sandboxId/files/:path',
      { config: { ...read, sends: 'file' }, schema: { ...docs.getSandboxFile, params: wire.filePath } },
      async (request, reply) => await sendFile(deps, request, reply, request.params),
    );
    app.get(
      '/v1/sandboxes/:sandboxId/files/*',
      { config: read, schema: { params: wire.deepFilePath, hide: true } },
      async (request, reply) => {
        const { '*': path, sandboxId } = request.params;
        return await sendFile(deps, request, reply, { sandboxId, path });
      },
    );
    await Promise.resolve();
  };
}

/** Puts files into a sandbox and takes them out, while no turn runs on it. */
export function sandboxWriteRoutes(deps: SandboxRouteDeps & { readonly uploads: Uploads }): FastifyPluginAsyncZod {
  return async (app) => {
    // The body is left in the connection: it is read up to a file's maximum length.
    app.removeAllContentTypeParsers();
    app.addContentTypeParser('*', (_request, _payload, done) => done(null));
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

function typeOf({ path }: Pick<WorkspaceFile, 'path'>): string {
  return mime.getType(path) ?? UNKNOWN_MEDIA_TYPE;
}

async function filesOf(deps: SandboxRouteDeps, request: FastifyRequest, sandboxId: string) {
  const { state } = await reachedSandbox(deps, request, sandboxId);
  return await deps.workspaces.manifest(callerOf(request).tenantId, state.files);
}

async function sendFile(
  deps: SandboxRouteDeps,
  request: FastifyRequest,
  reply: FastifyReply,
  { sandboxId, path }: Place,
): Promise<FastifyReply> {
  const file = fileAt(await filesOf(deps, request, sandboxId), path);
  if (file === undefined) throw refused(reject('not_found', 'The sandbox has no such file.'));
  const { tenantId } = callerOf(request);
  return await sendBytes(request, reply, {
    name: path.slice(path.lastIndexOf('/') + 1),
    contentType: typeOf(file),
    size: file.size,
    sha256: file.sha256,
    open: async (range) => await deps.workspaces.open(tenantId, file.sha256, range),
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
  try {
    const bytes = await collected(body, { declaredBytes, limitBytes: deps.workspaceLimits.fileBytes, signal });
    const outcome = accepted(await writeFile(deps, { ...inputOf(request, sandboxId), path, bytes }));
    await deps.freshness('sandboxes', sandboxRef(tenantId, sandboxId), outcome.position);
    return { path, size: bytes.length, sha256: outcome.reply };
  } finally {
    close();
  }
}

/** @throws ProblemError limit_exceeded for a body longer than a file may be, unread where it says so itself */
async function collected(
  body: AsyncIterable<Uint8Array>,
  limits: { readonly declaredBytes: number | null; readonly limitBytes: number; readonly signal: AbortSignal },
): Promise<Buffer> {
  const { declaredBytes, limitBytes, signal } = limits;
  const tooLarge = () => {
    const message = `The file is larger than ${limitBytes} bytes, the limit of a file of a sandbox. Nothing was stored.`;
    return refused(reject('limit_exceeded', message, { details: { limit: 'file', limitBytes } }));
  };
  if ((declaredBytes ?? 0) > limitBytes) throw tooLarge();
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body) {
    signal.throwIfAborted();
    length += chunk.length;
    if (length > limitBytes) throw tooLarge();
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
