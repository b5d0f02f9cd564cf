import type { SecretStore } from './port.ts';

/** What it needs of a tenant's data key (streams/keyring.ts). */
export interface SecretSealer {
  sealText(tenant: string, context: string, text: string): Promise<string>;
  /** Null when the tenant has been erased. */
  openText(tenant: string, context: string, sealed: string): Promise<string | null>;
}

/** What it needs of the bucket `SECRETS` (streams/key-value.ts). */
export interface SecretBucket {
  get(key: string): Promise<{ readonly value: string } | null>;
  put(key: string, value: string): Promise<unknown>;
  shred(key: string): Promise<void>;
  erase(prefix: string): Promise<void>;
}

/** The longest name and the longest secret, in characters and in bytes of UTF-8. */
const NAME_CHARS_MAX = 500;
const SECRET_BYTES_MAX = 65_536;

/** Secrets in a key-value bucket. A bucket key is the tenant and the name, both as base64url: any text is a legal name. */
export class SealedSecrets implements SecretStore {
  readonly #sealer: SecretSealer;
  readonly #bucket: SecretBucket;

  constructor(sealer: SecretSealer, bucket: SecretBucket) {
    this.#sealer = sealer;
    this.#bucket = bucket;
  }

  async put(tenant: string, name: string, secret: string): Promise<void> {
    if (name.length === 0 || name.length > NAME_CHARS_MAX) {
      throw new RangeError(`the name of a secret has 1 to ${NAME_CHARS_MAX} characters`);
    }
    if (Buffer.byteLength(secret) > SECRET_BYTES_MAX) {
      throw new RangeError(`a secret has ${SECRET_BYTES_MAX} bytes at most`);
    }
    await this.#bucket.put(keyOf(tenant, name), await this.#sealer.sealText(tenant, contextOf(name), secret));
  }

  async get(tenant: string, name: string): Promise<string | null> {
    const entry = await this.#bucket.get(keyOf(tenant, name));
    return entry === null ? null : await this.#sealer.openText(tenant, contextOf(name), entry.value);
  }

  async remove(tenant: string, name: string): Promise<void> {
    await this.#bucket.shred(keyOf(tenant, name));
  }

  /**
   * Removes all secrets of a tenant. Their bytes are not overwritten: the data key is destroyed first
   * (docs/decisions/0009).
   */
  async eraseAll(tenant: string): Promise<void> {
    await this.#bucket.erase(secretsOf(tenant));
  }
}

function secretsOf(tenant: string): string {
  return `secret.${Buffer.from(tenant).toString('base64url')}`;
}

function keyOf(tenant: string, name: string): string {
  return `${secretsOf(tenant)}.${Buffer.from(name).toString('base64url')}`;
}

function contextOf(name: string): string {
  return `secret ${name}`;
}
