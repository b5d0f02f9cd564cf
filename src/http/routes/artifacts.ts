import type { FastifyReply, FastifyRequest } from 'fastify';
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import { actorOf, artifactOutOfReach } from '../../auth/caller.ts';
import type { Caller } from '../../auth/caller.ts';
import type { LinkSigner } from '../../commands/artifact/links.ts';
import type { ArtifactDeps } from '../../commands/artifact/deps.ts';
import {
  compareVersions,
  entryOf,
  fileAt,
  findArtifact,
  openFile,
  treeOf,
  versionOf,
} from '../../commands/artifact/read.ts';
import type { FoundArtifact, FoundVersion } from '../../commands/artifact/read.ts';
import { removeArtifact } from '../../commands/artifact/remove.ts';
import { zipOf } from '../../commands/artifact/zip.ts';
import type { ArtifactQueries, ListedSession } from '../../projections/artifacts/queries.ts';
import type { SessionQueries } from '../../projections/sessions/queries.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import { sendBytes, sendMade } from '../bytes.ts';
import { operations } from '../described.ts';
import type { Downloads } from '../downloads.ts';
import type { Freshness } from '../freshness.ts';
import { callerOf } from '../gate.ts';
import { ListRequest } from '../list-request.ts';
import { accepted, notFound, ProblemError, refused } from '../problem.ts';
import type { Uploads } from '../upload-body.ts';
import { viewToResponse, toVersionedResponse } from '../wire/artifact.ts';
import * as wire from '../wire/artifacts.ts';
import { sessionRef } from './sessions.ts';
import { withoutNulls } from '../../domain/kernel/optional.ts';

const docs = operations('Artifacts', {
  listArtifacts: [
    'List artifacts, oldest first',
    'Of one session, or of all within reach. The first page waits, 2 s at most, for artifacts whose events the node that answers has heard of.',
  ],
  getArtifact: ['One artifact with its versions, oldest first'],
  deleteArtifact: ['Delete an artifact with every version and its bytes', 'Its links stop working.'],
  createArtifactLink: [
    'Make a link to a version',
    'Anyone with the path may read the version (a folder as a zip) until it expires, without a credential.',
  ],
  getArtifactContent: [
    'The bytes of a file',
    'Range, If-Range and If-None-Match are understood; the entity tag is the quoted sha256.',
  ],
  getArtifactTree: ['The files of a version, by path'],
  getArtifactFile: [
    'The bytes of one file of a version',
    'Slashes of the path may be sent as they are, or as %2F. Ranges and entity tags as for the content.',
  ],
  compareArtifactVersions: [
    'Files added, removed and changed',
    'From the version before, or from the one that `from` names; version 1 without `from` lists every file as added.',
  ],
  getArtifactZip: ['All files of a version as a zip archive'],
  openArtifactLink: ['What a link opens', 'The link is its own credential.'],
});

export interface ArtifactRouteDeps extends ArtifactDeps {
  readonly queries: ArtifactQueries;
  readonly sessionQueries: Pick<SessionQueries, 'get'>;
  readonly freshness: Freshness;
  /** Waits, for a bounded time, until the list shows what this node has heard of, whichever node wrote it. */
  readonly heard: { readonly reached: (tenantId: string) => Promise<unknown> };
  /** Resolves when the read model of sessions has what the log held before, or when that takes too long. */
  readonly caughtUp: () => Promise<void>;
  readonly links: LinkSigner;
  readonly uploads: Uploads;
  readonly downloads: Downloads;
}

/** Files and folders with their versions, for those who reach their sessions. */
export function artifactRoutes(deps: ArtifactRouteDeps): FastifyPluginAsyncZod {
  const { queries, sessionQueries, freshness } = deps;
  return async (app) => {
    const config = { rules: { access: ACCESS.artifacts } };
    app.get(
      '/v1/artifacts',
      { config, schema: { ...docs.listArtifacts, querystring: wire.listQuery, response: { 200: wire.artifactList } } },
      async (request) => {
        const caller = callerOf(request);
        const { tenantId, subject, agents } = caller;
        const { sessionId } = request.query;
        const list = new ListRequest(
          `GET /v1/artifacts ${tenantId} ${subject ?? ''} ${sessionId ?? ''}`,
          request.query,
          2,
        );
        // Whose session it is does not matter here: the artifacts say who may see them.
        const session =
          sessionId === undefined ? undefined : await sessionQueries.get(sessionRef(caller, sessionId), null);
        const page = { limit: list.wanted, after: list.after };
        if (session !== null && list.after === null) await untilListed(deps, tenantId, session);
        const found = session === null ? [] : await queries.list(tenantId, { session, subject, agents }, page);
        const { entries, nextCursor } = list.page(found, ({ createdAt, artifactId }) => [createdAt, artifactId]);
        return { artifacts: entries.map(viewToResponse), nextCursor };
      },
    );
    app.get(
      '/v1/artifacts/:artifactId',
      { config, schema: { ...docs.getArtifact, params: wire.artifactPath, response: { 200: wire.artifact } } },
      async (request) => toVersionedResponse((await reached(deps, request, request.params)).artifact),
    );
    app.delete(
      '/v1/artifacts/:artifactId',
      {
        config,
        schema: { ...docs.deleteArtifact, params: wire.artifactPath, response: { 200: wire.artifactDeleted } },
      },
      async (request) => {
        const caller = callerOf(request);
        const { artifactId } = request.params;
        const meta = { actor: actorOf(caller), causation: request.id };
        const outOfReach = reachOf(caller);
        const outcome = await removeArtifact(deps, { tenant: caller.tenantId, artifactId, outOfReach, ...meta });
        await freshness('artifacts', refOf(caller, artifactId), accepted(outcome).position);
        return { artifactId, deleted: true as const };
      },
    );
    app.post(
      '/v1/artifacts/:artifactId/links',
      {
        config,
        schema: {
          ...docs.createArtifactLink,
          params: wire.artifactPath,
          body: wire.linkBody,
          response: { 201: wire.link },
        },
      },
      async (request, reply) => {
        const { version = 'latest', expiresIn } = request.body;
        const found = await reachedVersion(deps, request, { ...request.params, version: String(version) });
        const { tenant, artifact } = found;
        const target = { tenant, artifactId: artifact.artifactId, version: found.version.version };
        const { token, expiresAt } = deps.links.sign(target, expiresIn);
        return await reply.code(201).send({ path: `/v1/artifact-links/${token}`, expiresAt });
      },
    );
    await app.register(versionRoutes(deps));
    await app.register(linkRoutes(deps));
  };
}

/** Waits, 2 s at most, until a list has what this node has heard of. @throws UnavailableError (streams), of a fork */
async function untilListed(
  { heard, caughtUp }: ArtifactRouteDeps,
  tenantId: string,
  session: ListedSession | undefined,
): Promise<void> {
  // What an ancestor had made by then is in rows of sessions.
  await Promise.all([heard.reached(tenantId), session?.origin === undefined ? undefined : caughtUp()]);
}

/** One version: its bytes, its files, and what it changed. */
function versionRoutes(deps: ArtifactRouteDeps): FastifyPluginAsyncZod {
  return async (app) => {
    const config = { rules: { access: ACCESS.artifacts } };
    const base = '/v1/artifacts/:artifactId/versions/:version';
    app.get(
      `${base}/content`,
      { config: { ...config, sends: 'file' }, schema: { ...docs.getArtifactContent, params: wire.versionPath } },
      async (request, reply) => {
        const found = await reachedVersion(deps, request, request.params);
        if (found.artifact.kind === 'folder') throw isFolder();
        return await sendVersion(deps, request, reply, found);
      },
    );
    app.get(
      `${base}/tree`,
      { config, schema: { ...docs.getArtifactTree, params: wire.versionPath, response: { 200: wire.tree } } },
      async (request) => {
        const found = await reachedVersion(deps, request, request.params);
        const { artifactId } = found.artifact;
        return { artifactId, version: found.version.version, files: (await treeOf(deps, found)).map(entryOf) };
      },
    );
    app.get(
      `${base}/files/:path`,
      { config: { ...config, sends: 'file' }, schema: { ...docs.getArtifactFile, params: wire.filePath } },
      async (request, reply) => {
        return await sendFile(deps, request, reply, request.params);
      },
    );
    app.get(
      `${base}/files/*`,
      { config, schema: { params: wire.deepFilePath, hide: true } },
      async (request, reply) => {
        const { '*': path, ...rest } = request.params;
        return await sendFile(deps, request, reply, { ...rest, path });
      },
    );
    await app.register(wholeRoutes(deps));
  };
}

/** What concerns all files of a version. */
function wholeRoutes(deps: ArtifactRouteDeps): FastifyPluginAsyncZod {
  return async (app) => {
    const config = { rules: { access: ACCESS.artifacts } };
    const base = '/v1/artifacts/:artifactId/versions/:version';
    app.get(
      `${base}/diff`,
      {
        config,
        schema: {
          ...docs.compareArtifactVersions,
          params: wire.versionPath,
          querystring: wire.diffQuery,
          response: { 200: wire.diff },
        },
      },
      async (request) => {
        const found = await reachedVersion(deps, request, request.params);
        const {
          kind: _kind,
          artifactId,
          from,
          to,
          ...lists
        } = accepted(await compareVersions(deps, found, request.query.from));
        const { added, removed, changed } = lists;
        const files = { added: [...added], removed: [...removed], changed: [...changed] };
        return { artifactId, ...withoutNulls({ from }), to, ...files };
      },
    );
    app.get(
      `${base}/zip`,
      { config: { ...config, sends: 'archive' }, schema: { ...docs.getArtifactZip, params: wire.versionPath } },
      async (request, reply) => {
        return await sendZip(deps, request, reply, await reachedVersion(deps, request, request.params));
      },
    );
    await Promise.resolve();
  };
}

/** A link is its own credential. */
function linkRoutes(deps: ArtifactRouteDeps): FastifyPluginAsyncZod {
  return async (app) => {
    app.get(
      '/v1/artifact-links/:token',
      {
        config: { rules: { access: null }, sends: 'file' },
        schema: { ...docs.openArtifactLink, params: wire.linkPath },
      },
      async (request, reply) => {
        const target = deps.links.open(request.params.token);
        if (target === 'unknown') throw notFound('link');
        if (target === 'expired') {
          throw new ProblemError({ code: 'token_expired', message: 'The link is past its time. Ask for a new one.' });
        }
        const { tenant, artifactId, version } = target;
        const found = accepted(await findArtifact(deps, { tenant, artifactId, outOfReach: () => null }));
        const one = accepted(versionOf(found, String(version)));
        if (one.artifact.kind === 'folder') return await sendZip(deps, request, reply, one);
        return await sendVersion(deps, request, reply, one);
      },
    );
    await Promise.resolve();
  };
}

export function refOf(caller: Caller, artifactId: string): AggregateRef {
  return { tenant: caller.tenantId, kind: 'artifact', id: artifactId };
}

export function reachOf(caller: Caller) {
  return (owner: { readonly subject: string | null; readonly agentId: string } | null) =>
    artifactOutOfReach(caller, owner);
}

/** @throws ProblemError not_found, with the same bytes for a missing one and one out of reach; not_granted */
async function reached(
  deps: ArtifactRouteDeps,
  request: FastifyRequest,
  { artifactId }: { readonly artifactId: string },
): Promise<FoundArtifact> {
  const caller = callerOf(request);
  return accepted(await findArtifact(deps, { tenant: caller.tenantId, artifactId, outOfReach: reachOf(caller) }));
}

async function reachedVersion(
  deps: ArtifactRouteDeps,
  request: FastifyRequest,
  path: { readonly artifactId: string; readonly version: string },
): Promise<FoundVersion> {
  return accepted(versionOf(await reached(deps, request, path), path.version));
}

async function sendVersion(
  deps: ArtifactRouteDeps,
  request: FastifyRequest,
  reply: FastifyReply,
  found: FoundVersion,
): Promise<FastifyReply> {
  const { version } = found;
  return await sendBytes(deps.downloads, request, reply, {
    name: found.artifact.name,
    of: shareOf(request, found),
    ...version,
    open: async (range) => await openFile(deps, found, version, range),
  });
}

async function sendFile(
  deps: ArtifactRouteDeps,
  request: FastifyRequest,
  reply: FastifyReply,
  path: { readonly artifactId: string; readonly version: string; readonly path: string },
): Promise<FastifyReply> {
  const found = await reachedVersion(deps, request, path);
  const file = await fileAt(deps, found, path.path);
  if ('kind' in file) throw refused(file);
  const name = file.path.slice(file.path.lastIndexOf('/') + 1);
  const open = async (range?: { first: number; last: number }) => await openFile(deps, found, file, range);
  return await sendBytes(deps.downloads, request, reply, { ...file, name, of: shareOf(request, found), open });
}

async function sendZip(
  deps: ArtifactRouteDeps,
  request: FastifyRequest,
  reply: FastifyReply,
  found: FoundVersion,
): Promise<FastifyReply> {
  const open = async () => await zipOf(deps, found);
  return await sendMade(deps.downloads, request, reply, {
    name: `${found.artifact.name}.zip`,
    contentType: 'application/zip',
    of: shareOf(request, found),
    open,
  });
}

/** Readers with a link need no credential for it: theirs are not taken from those of the tenant itself. */
function shareOf({ caller }: FastifyRequest, { tenant }: FoundVersion): string {
  return caller === null ? `links of ${tenant}` : tenant;
}

function isFolder(): ProblemError {
  const message = 'The artifact is a folder. Read its tree, its files one by one, or all of it as a zip.';
  return new ProblemError({ code: 'invalid_request', message });
}
