import { Readable } from 'node:stream';
import {
  AbortMultipartUploadCommand,
  DeleteObjectCommand,
  DeleteObjectsCommand,
  GetObjectCommand,
  HeadBucketCommand,
  ListMultipartUploadsCommand,
  ListObjectsV2Command,
  S3Client,
} from '@aws-sdk/client-s3';
import type { ListMultipartUploadsCommandOutput, ListObjectsV2CommandOutput } from '@aws-sdk/client-s3';
import { Upload } from '@aws-sdk/lib-storage';
import { UnavailableError } from '../../lib/unavailable.ts';
import { FairBudget } from '../../lib/fair-budget.ts';
import { addressOf, pathOf } from './port.ts';
import type { ByteRange, ObjectAddress, ObjectStore, PutOptions, StoredObject } from './port.ts';
import { S3Body } from './s3-body.ts';
import { optional } from '../../domain/kernel/optional.ts';

export interface S3Options {
  /** Absent: that of the region at AWS. */
  readonly endpoint?: string | undefined;
  readonly bucket: string;
  readonly region: string;
  /** Absent: what the SDK finds by itself (environment, instance, web identity). */
  readonly credentials?: { readonly accessKeyId: string; readonly secretAccessKey: string } | undefined;
  /** `https://host/bucket/key` instead of `https://bucket.host/key`. */
  readonly pathStyle: boolean;
  /** What all writes in progress may hold in memory together, bytes; absent: 256 MiB. */
  readonly bufferBytesMax?: number | undefined;
  /** An exchange with the store is aborted after this long without a byte, ms; absent: 30 s. */
  readonly silenceMs?: number | undefined;
}

/** A part of a multipart upload, bytes: the least that S3 accepts, and the most that waits in memory, twice. */
const PART_BYTES = 5_242_880;
const WRITE_BYTES = 2 * PART_BYTES;
const BUFFER_BYTES_MAX = 268_435_456;
/** A write that has waited this long for its memory is aborted, ms. */
const BUFFER_WAIT_MS = 30_000;
const CONNECT_MS = 2_000;
const SILENCE_MS = 30_000;
const TRIES = 3;
/** Of bodies that are read, and as many of everything else. */
const SOCKETS_MAX = 256;

/** Objects in an S3 bucket, `<tenant>/<owner>/<name>`. An upload is visible once S3 has assembled its parts. */
export function s3Objects(options: S3Options): ObjectStore & { readonly close: () => void } {
  return new S3Objects(options);
}

class S3Objects implements ObjectStore {
  readonly #client: S3Client;
  /** Bodies are as slow as their readers: connections of their own keep them from holding up writes and checks. */
  readonly #reads: S3Client;
  readonly #bucket: string;
  readonly #buffers: FairBudget;
  readonly #silenceMs: number;

  constructor({ endpoint, bucket, region, credentials, pathStyle, ...limits }: S3Options) {
    const { bufferBytesMax = BUFFER_BYTES_MAX, silenceMs = SILENCE_MS } = limits;
    this.#bucket = bucket;
    this.#silenceMs = silenceMs;
    // Half of it: slow senders of one tenant, which hold what they have for a long time, leave the others the rest.
    this.#buffers = new FairBudget({ total: bufferBytesMax, perName: Math.max(WRITE_BYTES, bufferBytesMax / 2) });
    const client = (): S3Client =>
      new S3Client({
        region,
        forcePathStyle: pathStyle,
        maxAttempts: TRIES,
        requestHandler: {
          connectionTimeout: CONNECT_MS,
          // `requestTimeout` would cut long uploads that continue.
          socketTimeout: silenceMs,
          httpAgent: { maxSockets: SOCKETS_MAX },
          httpsAgent: { maxSockets: SOCKETS_MAX },
        },
        ...optional({ endpoint, credentials }),
      });
    this.#client = client();
    this.#reads = client();
  }

  close(): void {
    this.#client.destroy();
    this.#reads.destroy();
  }

  async check(): Promise<void> {
    await storing(async () => await this.#client.send(new HeadBucketCommand({ Bucket: this.#bucket })));
  }

  async put(address: ObjectAddress, source: AsyncIterable<Uint8Array>, options: PutOptions = {}): Promise<number> {
    const { signal, declaredBytes = WRITE_BYTES } = options;
    const giveBack = await this.#buffer(address.tenant, Math.min(WRITE_BYTES, declaredBytes), signal);
    try {
      return await this.#write(address, source, signal);
    } finally {
      giveBack();
    }
  }

  /** The source is not read before there is memory for it: its sender waits. */
  async #buffer(tenant: string, bytes: number, signal: AbortSignal | undefined): Promise<() => void> {
    const late = AbortSignal.timeout(BUFFER_WAIT_MS);
    const until = signal === undefined ? late : AbortSignal.any([signal, late]);
    try {
      return await this.#buffers.take(tenant, Math.max(1, bytes), until);
    } catch (cause) {
      signal?.throwIfAborted();
      throw new UnavailableError('objects', 'too many writes to the object store are under way', { cause });
    }
  }

  async #write(
    address: ObjectAddress,
    source: AsyncIterable<Uint8Array>,
    signal: AbortSignal | undefined,
  ): Promise<number> {
    const watched = new WatchedSource(source, signal);
    const upload = new Upload({
      client: this.#client,
      params: {
        Bucket: this.#bucket,
        Key: keyOf(address),
        Body: Readable.from(watched.read(), { objectMode: false, highWaterMark: 65_536 }),
        // The server computes it too and refuses what arrives changed.
        ChecksumAlgorithm: 'CRC32',
      },
      partSize: PART_BYTES,
      queueSize: 1,
      leavePartsOnError: false,
    });
    const abort = (): void => void upload.abort();
    signal?.addEventListener('abort', abort, { once: true });
    try {
      await storing(async () => await upload.done());
      return watched.bytes;
    } catch (error) {
      // The caller has to know why the source ended, not what the library made of it.
      if (watched.failure !== undefined) throw watched.failure;
      signal?.throwIfAborted();
      throw error;
    } finally {
      signal?.removeEventListener('abort', abort);
    }
  }

  async open(address: ObjectAddress, range?: ByteRange): Promise<Readable | null> {
    const part = range === undefined ? {} : { Range: `bytes=${range.first}-${range.last}` };
    const command = new GetObjectCommand({ Bucket: this.#bucket, Key: keyOf(address), ...part });
    const body = new S3Body(command, this.#silenceMs);
    const found = await storing(async () => await this.#reads.send(command).catch(nullIfAbsent));
    return found === null ? null : body.read(found.Body);
  }

  async remove(address: ObjectAddress): Promise<void> {
    const command = new DeleteObjectCommand({ Bucket: this.#bucket, Key: keyOf(address) });
    await storing(async () => await this.#client.send(command));
  }

  async removeOwner(tenant: string, owner: string): Promise<void> {
    await this.#removeAll(`${pathOf(tenant, owner)}/`);
  }

  async eraseTenant(tenant: string): Promise<void> {
    const prefix = `${pathOf(tenant)}/`;
    await this.#abortUploads(prefix, Infinity);
    await this.#removeAll(prefix);
  }

  async *list(): AsyncIterable<readonly StoredObject[]> {
    for await (const page of this.#pages('')) {
      yield page.flatMap(({ Key = '', Size = 0, LastModified }) => {
        const address = addressOf(Key);
        if (address === null) return [];
        return [{ ...address, bytes: Size, modifiedAtMs: LastModified?.getTime() ?? Date.now() }];
      });
    }
  }

  async removeUnfinished(beforeMs: number): Promise<number> {
    return await this.#abortUploads('', beforeMs);
  }

  async #removeAll(prefix: string): Promise<void> {
    for await (const page of this.#pages(prefix)) {
      const Objects = page.map(({ Key = '' }) => ({ Key }));
      if (Objects.length === 0) continue;
      const command = new DeleteObjectsCommand({ Bucket: this.#bucket, Delete: { Objects, Quiet: true } });
      const { Errors = [] } = await storing(async () => await this.#client.send(command));
      if (Errors.length > 0) throw new UnavailableError('objects', `the object store kept ${Errors.length} objects`);
    }
  }

  async *#pages(prefix: string): AsyncIterable<NonNullable<ListObjectsV2CommandOutput['Contents']>> {
    let token: string | undefined;
    do {
      const command = new ListObjectsV2Command({
        Bucket: this.#bucket,
        Prefix: prefix,
        MaxKeys: 1_000,
        ...optional({ ContinuationToken: token }),
      });
      const page: ListObjectsV2CommandOutput = await storing(async () => await this.#client.send(command));
      yield page.Contents ?? [];
      token = page.IsTruncated === true ? page.NextContinuationToken : undefined;
    } while (token !== undefined);
  }

  async #abortUploads(prefix: string, beforeMs: number): Promise<number> {
    let aborted = 0;
    let after: { KeyMarker?: string; UploadIdMarker?: string } | null = {};
    while (after !== null) {
      const command: ListMultipartUploadsCommand = new ListMultipartUploadsCommand({
        Bucket: this.#bucket,
        Prefix: prefix,
        ...after,
      });
      const page: ListMultipartUploadsCommandOutput | null = await storing(
        async () => await this.#client.send(command).catch(nullIfNotImplemented),
      );
      if (page === null) return aborted;
      for (const { Key = '', UploadId, Initiated } of page.Uploads ?? []) {
        if (addressOf(Key) === null || (Initiated?.getTime() ?? 0) >= beforeMs) continue;
        const abort = new AbortMultipartUploadCommand({ Bucket: this.#bucket, Key, UploadId });
        await storing(async () => await this.#client.send(abort).catch(nullIfAbsent));
        aborted++;
      }
      const { IsTruncated, NextKeyMarker: KeyMarker, NextUploadIdMarker: UploadIdMarker } = page;
      const more = IsTruncated === true && KeyMarker !== undefined && UploadIdMarker !== undefined;
      after = more ? { KeyMarker, UploadIdMarker } : null;
    }
    return aborted;
  }
}

/** Counts what flows, and remembers how the source failed. */
class WatchedSource {
  bytes = 0;
  failure: Error | undefined;
  readonly #source: AsyncIterable<Uint8Array>;
  readonly #signal: AbortSignal | undefined;

  constructor(source: AsyncIterable<Uint8Array>, signal: AbortSignal | undefined) {
    this.#source = source;
    this.#signal = signal;
  }

  async *read(): AsyncIterable<Uint8Array> {
    const chunks = this.#source[Symbol.asyncIterator]();
    try {
      for (let next = await this.#next(chunks); next.done !== true; next = await this.#next(chunks)) {
        this.bytes += next.value.length;
        yield next.value;
      }
    } finally {
      await chunks.return?.();
    }
  }

  /** What the library throws into the generator when it gives up is not a failure of the source. */
  async #next(chunks: AsyncIterator<Uint8Array>): Promise<IteratorResult<Uint8Array>> {
    try {
      this.#signal?.throwIfAborted();
      return await chunks.next();
    } catch (error) {
      this.failure = error instanceof Error ? error : new Error('the source failed', { cause: error });
      throw error;
    }
  }
}

function keyOf({ tenant, owner, name }: ObjectAddress): string {
  return pathOf(tenant, owner, name);
}

const ABSENT = ['NoSuchKey', 'NotFound', 'NoSuchUpload'];

function nullIfAbsent(error: unknown): null {
  if (error instanceof Error && ABSENT.includes(error.name)) return null;
  throw error;
}

/** Some servers do not list unfinished uploads; those remove them by themselves, or by a rule of the bucket. */
function nullIfNotImplemented(error: unknown): null {
  if (error instanceof Error && error.name === 'NotImplemented') return null;
  throw error;
}

/**
 * Whatever the service refuses or does not answer means that the store is unavailable: none of our requests is wrong in
 * itself.
 */
async function storing<T>(operation: () => Promise<T>): Promise<T> {
  try {
    return await operation();
  } catch (cause) {
    throw new UnavailableError('objects', 'the object store did not do what it was asked', { cause });
  }
}
