import { createHash } from 'node:crypto';
import { request } from 'node:http';
import type { ClientRequest, IncomingMessage } from 'node:http';
import { z } from 'zod';
import type { ObjectStore } from '#src/drivers/objects/port.ts';
import { MIB } from './figures.ts';
import type { Node } from './stage.ts';
import type { Tenant } from './tenant.ts';

const CHUNK = Buffer.alloc(MIB, 'artifact ');

export function perSecond(bytesPerMs: number): string {
  return `${((bytesPerMs * 1_000) / MIB).toFixed(0)} MiB/s`;
}

function* chunksOf(size: number): Iterable<Buffer> {
  for (let left = size; left > 0; left -= CHUNK.length) yield CHUNK.subarray(0, left);
}

/** Writes to a store with no Host between, with the digest, which whoever stores by content has to make too. */
export async function putDirectly(store: ObjectStore, name: string, size: number): Promise<void> {
  const hash = createHash('sha256');
  async function* source(): AsyncIterable<Buffer> {
    for (const chunk of chunksOf(size)) {
      hash.update(chunk);
      yield await Promise.resolve(chunk);
    }
  }
  await store.put(placeOf(name), source());
}

/** Where an object of that name is in a store that is written to directly. */
export function placeOf(name: string): Parameters<ObjectStore['put']>[0] {
  return { tenant: 'tn_bench', owner: 'af_bench', name };
}

const uploaded = z.object({ artifact: z.object({ artifactId: z.string() }) });

/** Bytes over HTTP, at the pace of the slower side. */
export class ArtifactClient {
  readonly #address: string;
  readonly #headers: Readonly<Record<string, string>>;

  constructor({ address }: Node, { id, key }: Tenant) {
    this.#address = address;
    this.#headers = { authorization: `Bearer ${key}`, 'svc-tenant': id, 'svc-protocol': '8' };
  }

  async upload(size: number): Promise<string> {
    const sent = this.#open('POST', '/v1/artifacts?name=bench', { 'content-length': size });
    const answer = answerOf(sent);
    for (const chunk of chunksOf(size)) {
      if (!sent.write(chunk)) await new Promise((resolve) => sent.once('drain', resolve));
    }
    sent.end();
    const { status, text } = await bodyOf(await answer);
    if (status !== 201) throw new Error(`the upload was answered ${status}: ${text}`);
    return uploaded.parse(JSON.parse(text)).artifact.artifactId;
  }

  async download(id: string, size: number): Promise<void> {
    const sent = this.#open('GET', `/v1/artifacts/${id}/versions/latest/content`, {});
    const answer = answerOf(sent);
    sent.end();
    let read = 0;
    for await (const chunk of await answer) if (chunk instanceof Uint8Array) read += chunk.length;
    if (read !== size) throw new Error(`${read} of ${size} bytes came back`);
  }

  async remove(id: string): Promise<void> {
    const sent = this.#open('DELETE', `/v1/artifacts/${id}`, {});
    const answer = answerOf(sent);
    sent.end();
    await bodyOf(await answer);
  }

  #open(method: string, path: string, headers: Readonly<Record<string, string | number>>): ClientRequest {
    const [hostname, port] = this.#address.split(':');
    return request({ hostname, port: Number(port), method, path, headers: { ...this.#headers, ...headers } });
  }
}

async function answerOf(sent: ClientRequest): Promise<IncomingMessage> {
  return await new Promise((resolve, reject) => {
    sent.once('response', resolve);
    sent.once('error', reject);
  });
}

async function bodyOf(answer: IncomingMessage): Promise<{ status: number; text: string }> {
  let text = '';
  for await (const chunk of answer) text += String(chunk);
  return { status: answer.statusCode ?? 0, text };
}
