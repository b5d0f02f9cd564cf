import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import type { ClientRequest, IncomingMessage } from 'node:http';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { directoryObjects } from '#src/drivers/objects/directory.ts';
import type { ObjectStore } from '#src/drivers/objects/port.ts';
import { median } from '../figures.ts';
import type { Row } from '../row.ts';
import { Tenant } from '../tenant.ts';

const MIB = 1_048_576;
/** At full length, bytes. */
const SIZE = 2_048 * MIB;
const CHUNK = Buffer.alloc(MIB, 'artifact ');
const ROUNDS = 3;
/** What the memory of a Host that is warm may grow by while bytes of any number flow through it. */
const GROWTH_MAX = 64 * MIB;
/** A first transfer makes code and buffers that stay: they are not what a large one costs. */
const WARM_UP = 128 * MIB;

/**
 * A large file up and down, one after the other, beside the same bytes written to and read from the same kind of store by
 * this process. The ratio is a figure to look at: client and Host share the machine, the bare side has no network between.
 */
export const artifactBytes: Row = async ({ stage, scale, report }) => {
  const size = Math.max(64, Math.floor((SIZE * scale * scale) / MIB)) * MIB;
  const env = { AGENT_HOST_ARTIFACT_FILE_BYTES: String(SIZE), AGENT_HOST_REQUEST_SECONDS: '600' };
  const host = await stage.host('commands,reads,projector,engine', env);
  const tenant = await Tenant.create(host, stage.adminKey);
  const headers = { authorization: `Bearer ${tenant.key}`, 'svc-tenant': tenant.id, 'svc-protocol': '8' };
  const directory = await mkdtemp(join(tmpdir(), 'agent-host-bench-objects-'));
  const store = await directoryObjects(directory);
  const rates: Record<'up' | 'down' | 'write' | 'read', number[]> = { up: [], down: [], write: [], read: [] };
  let growth = 0;
  try {
    const call = new Call(host.address, headers);
    const warm = await call.upload(WARM_UP);
    await call.download(warm, WARM_UP);
    await call.remove(warm);
    for (let round = 0; round < ROUNDS; round++) {
      forgetPeak(host.pid);
      const before = residentBytes(host.pid);
      const began = performance.now();
      const id = await call.upload(size);
      rates.up.push(size / (performance.now() - began));
      const again = performance.now();
      await call.download(id, size);
      rates.down.push(size / (performance.now() - again));
      growth = Math.max(growth, peakBytes(host.pid) - before);
      await call.remove(id);
      const direct = await written(store, size);
      rates.write.push(direct.write);
      rates.read.push(direct.read);
    }
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
  report(`${size / MIB} MiB, ${ROUNDS} times; the Host's memory grew by ${(growth / MIB).toFixed(0)} MiB at most`);
  const line = (measure: string, ours: readonly number[], theirs: readonly number[]) => {
    const ratio = median(ours) / median(theirs);
    return {
      measure: `artifact of ${size / MIB} MiB, ${measure} (bare: the same bytes and the same store, no Host)`,
      subject: perSecond(median(ours)),
      baseline: perSecond(median(theirs)),
      ratio: ratio.toFixed(2),
      target: `memory + ≤ ${GROWTH_MAX / MIB} MiB`,
      met: growth <= GROWTH_MAX,
    };
  };
  return [line('up', rates.up, rates.write), line('down', rates.down, rates.read)];
};

function perSecond(bytesPerMs: number): string {
  return `${((bytesPerMs * 1_000) / MIB).toFixed(0)} MiB/s`;
}

function* chunksOf(size: number): Iterable<Buffer> {
  for (let left = size; left > 0; left -= CHUNK.length) yield CHUNK.subarray(0, left);
}

/** With the digest, which whoever stores by content has to make too. */
async function written(store: ObjectStore, size: number): Promise<{ write: number; read: number }> {
  const at = { tenant: 'tn_bench', owner: 'af_bench', name: 'up_bench' };
  const hash = createHash('sha256');
  async function* source(): AsyncIterable<Buffer> {
    for (const chunk of chunksOf(size)) {
      hash.update(chunk);
      yield await Promise.resolve(chunk);
    }
  }
  const began = performance.now();
  await store.put(at, source());
  const write = size / (performance.now() - began);
  const again = performance.now();
  const stream = await store.open(at);
  let read = 0;
  if (stream !== null) for await (const chunk of stream) if (chunk instanceof Uint8Array) read += chunk.length;
  if (read !== size) throw new Error('the store has not given back what it was given');
  const rate = size / (performance.now() - again);
  await store.remove(at);
  return { write, read: rate };
}

const uploaded = z.object({ artifact: z.object({ artifactId: z.string() }) });

/** Bytes over HTTP, at the pace of the slower side. */
class Call {
  readonly #address: string;
  readonly #headers: Readonly<Record<string, string>>;

  constructor(address: string, headers: Readonly<Record<string, string>>) {
    this.#address = address;
    this.#headers = headers;
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

/** Linux: from here on the peak is counted anew. */
function forgetPeak(pid: number): void {
  writeFileSync(`/proc/${pid}/clear_refs`, '5');
}

/** Linux: what the process holds now, and the most that it held since the peak was forgotten. */
function residentBytes(pid: number): number {
  return memoryOf(pid, 'VmRSS');
}

function peakBytes(pid: number): number {
  return memoryOf(pid, 'VmHWM');
}

function memoryOf(pid: number, name: string): number {
  const line = new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
  return Number(line?.[1] ?? 0) * 1_024;
}
