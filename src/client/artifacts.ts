import type { Artifact, Operations, UploadArtifactResponse } from './api.ts';
import type { Bytes, CallOptions, Connection } from './connection.ts';
import { pathOf } from './connection.ts';

export interface UploadOptions extends CallOptions {
  readonly sessionId?: string | undefined;
  /** Default: by the name. */
  readonly contentType?: string | undefined;
  readonly labels?: Readonly<Record<string, string>> | undefined;
}

export interface Download {
  readonly stream: ReadableStream<Uint8Array>;
  readonly contentType: string;
  /** Bytes; null: not known. */
  readonly size: number | null;
}

export interface DownloadOptions {
  /** Default: the latest. */
  readonly version?: number | 'latest' | undefined;
  /** A file of a folder. */
  readonly path?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

type Query = NonNullable<Operations['GET /v1/artifacts']['query']>;

/** Files and folders. */
export class Artifacts {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Stores a new file. It is sent as it comes, once: a stream cannot be resent. */
  async upload(name: string, body: Bytes, options: UploadOptions = {}): Promise<UploadArtifactResponse> {
    const { sessionId, labels = {} } = options;
    const label = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
    return await this.#upload(pathOf('/v1/artifacts', {}, { name, sessionId, label }), body, options);
  }

  /** Stores a further version of a file. */
  async uploadVersion(
    artifactId: string,
    body: Bytes,
    options: Omit<UploadOptions, 'sessionId' | 'labels'> = {},
  ): Promise<UploadArtifactResponse> {
    return await this.#upload(pathOf('/v1/artifacts/{artifactId}/versions', { artifactId }), body, options);
  }

  async get(artifactId: string, options: CallOptions = {}): Promise<Artifact> {
    return await this.#connection.request('GET /v1/artifacts/{artifactId}', { params: { artifactId }, ...options });
  }

  async delete(artifactId: string, options: CallOptions = {}): Promise<void> {
    await this.#connection.request('DELETE /v1/artifacts/{artifactId}', { params: { artifactId }, ...options });
  }

  /** Oldest first. */
  async *list(query: Query = {}, options: CallOptions = {}): AsyncGenerator<Artifact, void, undefined> {
    let cursor = query.cursor;
    do {
      const page = await this.#connection.request('GET /v1/artifacts', { query: { ...query, cursor }, ...options });
      yield* page.artifacts;
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
  }

  /** The bytes of a version, or of one file of a folder, as a stream. */
  async download(artifactId: string, { version = 'latest', path, signal }: DownloadOptions = {}): Promise<Download> {
    const place =
      path === undefined
        ? pathOf('/v1/artifacts/{artifactId}/versions/{version}/content', { artifactId, version })
        : pathOf('/v1/artifacts/{artifactId}/versions/{version}/files/{path}', { artifactId, version, path });
    return await this.#download(place, signal);
  }

  /** All files of a version of a folder as a zip, as a stream. */
  async zip(artifactId: string, { version = 'latest', signal }: Omit<DownloadOptions, 'path'> = {}): Promise<Download> {
    return await this.#download(
      pathOf('/v1/artifacts/{artifactId}/versions/{version}/zip', { artifactId, version }),
      signal,
    );
  }

  async #download(path: string, signal: AbortSignal | undefined): Promise<Download> {
    const response = await this.#connection.send({ method: 'GET', path, repeatable: true, signal, timeoutMs: DAY_MS });
    const length = response.headers.get('content-length');
    const stream = response.body ?? new Blob([]).stream();
    const contentType = response.headers.get('content-type') ?? 'application/octet-stream';
    return { stream, contentType, size: length === null ? null : Number(length) };
  }

  async #upload(path: string, body: Bytes, { contentType, signal, timeoutMs = DAY_MS }: UploadOptions) {
    const headers = { 'content-type': contentType ?? '' };
    const response = await this.#connection.send({
      ...{ method: 'POST', path, body, repeatable: false, signal, timeoutMs },
      ...(contentType === undefined ? {} : { headers }),
    });
    const uploaded: UploadArtifactResponse = JSON.parse(await response.text());
    return uploaded;
  }
}

/** Bytes may take long; the signal ends them sooner. */
const DAY_MS = 86_400_000;
