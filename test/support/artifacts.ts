import { createHash } from 'node:crypto';
import type { z } from 'zod';
import * as wire from '#src/http/wire/artifacts.ts';
import { tenantStatus } from '#src/http/wire/schemas.ts';
import { RefusedError } from './client.ts';
import type { Answer, RawRequest, TenantClient } from './client.ts';

export type Uploaded = z.output<typeof wire.uploaded>;
export type ArtifactView = z.output<typeof wire.artifact>;

export function sha256(bytes: Buffer | string): string {
  return createHash('sha256').update(bytes).digest('hex');
}

/** The artifact routes of one tenant. */
export class ArtifactClient {
  readonly tenant: TenantClient;

  constructor(tenant: TenantClient) {
    this.tenant = tenant;
  }

  /** As it is answered; several bodies are sent as chunks without a length. */
  async send(
    query: Readonly<Record<string, string | readonly string[]>>,
    body: Buffer | readonly Buffer[],
    headers: RawRequest['headers'] = { 'content-type': 'application/octet-stream' },
  ): Promise<Answer> {
    const pairs = Object.entries(query).flatMap(([name, values]) => [values].flat().map((value) => [name, value]));
    const path = `/v1/artifacts?${new URLSearchParams(pairs).toString()}`;
    return await this.tenant.request({ method: 'POST', path, body, headers });
  }

  async upload(
    query: Readonly<Record<string, string | readonly string[]>>,
    body: Buffer | readonly Buffer[],
    headers?: RawRequest['headers'],
  ): Promise<Uploaded> {
    const answer = await this.send(query, body, headers);
    if (answer.status !== 201) throw new RefusedError('upload', answer);
    return wire.uploaded.parse(answer.json);
  }

  async sendVersion(artifactId: string, body: Buffer | readonly Buffer[]): Promise<Answer> {
    const headers = { 'content-type': 'application/octet-stream' };
    return await this.tenant.request({ method: 'POST', path: `/v1/artifacts/${artifactId}/versions`, body, headers });
  }

  async get(artifactId: string): Promise<ArtifactView> {
    return wire.artifact.parse((await this.#read(`/v1/artifacts/${artifactId}`)).json);
  }

  async list(query = ''): Promise<readonly ArtifactView[]> {
    return wire.artifactList.parse((await this.#read(`/v1/artifacts${query}`)).json).artifacts;
  }

  async content(artifactId: string, version: number | 'latest' = 'latest', headers = {}): Promise<Answer> {
    return await this.tenant.request({ path: `/v1/artifacts/${artifactId}/versions/${version}/content`, headers });
  }

  async diff(artifactId: string, version: number | 'latest', query = ''): Promise<z.output<typeof wire.diff>> {
    return wire.diff.parse((await this.#read(`/v1/artifacts/${artifactId}/versions/${version}/diff${query}`)).json);
  }

  async tree(artifactId: string, version: number | 'latest' = 'latest'): Promise<z.output<typeof wire.tree>> {
    return wire.tree.parse((await this.#read(`/v1/artifacts/${artifactId}/versions/${version}/tree`)).json);
  }

  async remove(artifactId: string): Promise<Answer> {
    return await this.tenant.request({ method: 'DELETE', path: `/v1/artifacts/${artifactId}` });
  }

  async link(artifactId: string, body: Record<string, unknown> = {}): Promise<z.output<typeof wire.link>> {
    const path = `/v1/artifacts/${artifactId}/links`;
    return wire.link.parse((await this.tenant.request({ method: 'POST', path, body })).json);
  }

  async use(): Promise<z.output<typeof wire.use>> {
    return wire.use.parse((await this.#read('/v1/tenant/artifacts')).json);
  }

  /** Bytes of artifacts alone. */
  async bytes(): Promise<number> {
    return tenantStatus.parse((await this.#read('/v1/tenant')).json).counts.artifactBytes;
  }

  async limit(limits: { fileBytes?: number; totalBytes?: number }): Promise<z.output<typeof wire.use>> {
    const answer = await this.tenant.request({ method: 'PUT', path: '/v1/tenant/artifacts', body: { limits } });
    if (answer.status !== 200) throw new RefusedError('limit', answer);
    return wire.use.parse(answer.json);
  }

  /** What the history of a session says of artifacts, as `type name version`. */
  async told(sessionId: string): Promise<string[]> {
    const items = await this.tenant.items(sessionId);
    return items
      .filter(({ type }) => type.startsWith('artifact.'))
      .map(({ type, payload }) => [type, Reflect.get(Object(payload), 'name'), Reflect.get(Object(payload), 'version')])
      .map((words) => words.filter((word) => word !== undefined).join(' '));
  }

  async #read(path: string): Promise<Answer> {
    const answer = await this.tenant.request({ path });
    if (answer.status !== 200) throw new RefusedError(path, answer);
    return answer;
  }
}
