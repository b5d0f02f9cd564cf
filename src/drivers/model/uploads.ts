import { hash } from 'node:crypto';
import type { FilesV4, SharedV4ProviderOptions, SharedV4ProviderReference } from '@ai-sdk/provider';
import { firstOf } from '../../lib/abort.ts';
import { WeightedLru } from '../../lib/lru.ts';
import type { ModelFile, RemoteProvider } from './port.ts';

/** Smaller files are sent with each call: an upload of its own would take longer than they do. */
const UPLOADED_ABOVE_BYTES = 1_048_576;
/** What OpenAI is asked for, and as long as Google keeps a file anyway. */
const LIFETIME_SECONDS = 172_800;
/** An id is not used any more this long before its file ends: the call that names it takes time. */
const MARGIN_MS = 600_000;
/** How long a file is sent with each call after its upload, or the id that it gave, was refused. */
const INLINE_MS = 600_000;
const UPLOAD_MS = 60_000;
/** Files of which a node knows the ids; of others they are uploaded again. */
const KNOWN_MAX = 10_000;

/** What a file is for a provider that stores it. */
export interface Uploaded {
  readonly mediaType: string;
  readonly reference: SharedV4ProviderReference;
}

/** Until when a file is named by its id, or, without one, sent as it is. */
interface Known {
  readonly uploaded: Uploaded | null;
  readonly untilMs: number;
  /** A call with the id was answered. */
  readonly isProven: boolean;
}

/** Where files of a tenant are stored. */
export interface Account {
  readonly provider: RemoteProvider;
  readonly tenant: string;
  readonly baseUrl: string;
  readonly apiKey: string;
  readonly files: FilesV4;
}

type Sized = Pick<ModelFile, 'size' | 'sha256'>;

/** The files that this node has stored at a provider, for as long as they live there. */
export class Uploads {
  readonly #known = new WeightedLru<Known>(KNOWN_MAX);
  readonly #clock: () => number;

  constructor(clock: () => number) {
    this.#clock = clock;
  }

  /** For one call. */
  of(account: Account, signal: AbortSignal): CallUploads {
    return new CallUploads({ account, signal, known: this.#known, clock: this.#clock });
  }
}

interface CallUploadsDeps {
  readonly account: Account;
  readonly signal: AbortSignal;
  readonly known: WeightedLru<Known>;
  readonly clock: () => number;
}

/** What one call names by ids, and what becomes of these. */
export class CallUploads {
  readonly #deps: CallUploadsDeps;
  readonly #account: string;
  readonly #named = new Set<string>();
  /** An upload has failed: the next ones of the call would wait as long for nothing. */
  #hasFailed = false;

  constructor(deps: CallUploadsDeps) {
    this.#deps = deps;
    const { provider, tenant, baseUrl, apiKey } = deps.account;
    // The key itself is nowhere but where it is used.
    this.#account = [tenant, provider, baseUrl, hash('sha256', apiKey).slice(0, 16)].join(' ');
  }

  /** Whether the call names a file by its id. */
  get isUsed(): boolean {
    return this.#named.size > 0;
  }

  /** Whether the provider takes such a file by an id; a result of a tool has no place for one in Google's wire. */
  takes({ size }: Sized, role: 'user' | 'tool'): boolean {
    return size > UPLOADED_ABOVE_BYTES && (this.#deps.account.provider !== 'google' || role === 'user');
  }

  /** A file that the provider has, without reading it; null: it is not known to have it. */
  find({ sha256 }: Sized): Uploaded | null {
    const key = this.#keyOf(sha256);
    const uploaded = this.#get(key)?.uploaded ?? null;
    if (uploaded !== null) this.#named.add(key);
    return uploaded;
  }

  /** Stores a file at the provider; null: it does not take it, and the file is sent with the call. */
  async store(
    { sha256 }: Sized,
    { filename, mediaType, data }: { readonly filename: string; readonly mediaType: string; readonly data: Uint8Array },
  ): Promise<Uploaded | null> {
    const key = this.#keyOf(sha256);
    if (this.#hasFailed || this.#get(key) !== undefined) return null;
    const { account, signal, clock } = this.#deps;
    const ends = firstOf([signal, AbortSignal.timeout(UPLOAD_MS)]);
    try {
      const { providerReference: reference } = await account.files.uploadFile({
        ...{ data: { type: 'data', data }, mediaType, filename, abortSignal: ends.signal },
        providerOptions: optionsOf(mediaType),
      });
      const uploaded = { mediaType, reference };
      const untilMs = clock() + LIFETIME_SECONDS * 1_000 - MARGIN_MS;
      this.#deps.known.set(key, { uploaded, untilMs, isProven: false }, 1);
      this.#named.add(key);
      return uploaded;
    } catch {
      this.#hasFailed = true;
      // Whatever it was, the call itself meets it too, or does without the upload.
      if (!signal.aborted) this.#sendInline(key);
      return null;
    } finally {
      ends.release();
    }
  }

  /** A call with the ids was answered. */
  accepted(): void {
    for (const key of this.#named) {
      const known = this.#get(key);
      if (known !== undefined) this.#deps.known.set(key, { ...known, isProven: true }, 1);
    }
  }

  /**
   * A call with the ids was refused, and was answered without them. One that had been answered before has ended at the
   * provider, and the file is stored there again; a provider that never takes its own ids is not asked for more of them.
   */
  refused(): void {
    for (const key of this.#named) {
      if (this.#get(key)?.isProven === true) this.#deps.known.delete(key);
      else this.#sendInline(key);
    }
  }

  #sendInline(key: string): void {
    const { known, clock } = this.#deps;
    known.set(key, { uploaded: null, untilMs: clock() + INLINE_MS, isProven: false }, 1);
  }

  #get(key: string): Known | undefined {
    const { known, clock } = this.#deps;
    const found = known.get(key);
    return found !== undefined && clock() < found.untilMs ? found : undefined;
  }

  #keyOf(sha256: string): string {
    return `${this.#account} ${sha256}`;
  }
}

/** Google is asked how far it is more often than its library would by itself. */
function optionsOf(mediaType: string): SharedV4ProviderOptions {
  const purpose = mediaType.startsWith('image/') ? 'vision' : 'user_data';
  return {
    openai: { purpose, expiresAfter: LIFETIME_SECONDS },
    google: { pollIntervalMs: 250, pollTimeoutMs: UPLOAD_MS },
  };
}
