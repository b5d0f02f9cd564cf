import type { KeyObject } from 'node:crypto';
import { open, seal } from '../lib/sealed-box.ts';
import { escapeToken, unescapeToken } from './subjects.ts';

/** What `key.<tenant>` holds. */
export interface WrappedKey {
  readonly id: string;
  /** Sealed with the Host's key for this tenant and id, base64. */
  readonly wrapped: string;
}

const CHECK_CONTEXT = 'host key check';

/** The entry of the bucket by which an installation knows its Host key. */
export const HOST_KEY_CHECK = 'check';

/** Whether a Host key is the one of the installation that has this check entry. */
export function isHostKeyOf(hostKey: KeyObject, check: string): boolean {
  return open(hostKey, Buffer.from(check, 'base64'), CHECK_CONTEXT) !== null;
}

/** What the entry by which an installation knows its Host key holds. */
export function hostKeyCheck(hostKey: KeyObject): string {
  return seal(hostKey, Buffer.alloc(0), { context: CHECK_CONTEXT }).toString('base64');
}

/** Below these names the bucket holds the wrapped keys of tenants. */
export const WRAPPED_KEYS = 'key';

/**
 * An entry of a tenant's data key, wrapped with the newest of the Host's keys: unchanged if it is already, null when
 * none of them opens it.
 */
export function rewrapped(hostKeys: readonly [KeyObject, ...KeyObject[]], entry: string, value: string): string | null {
  const tenant = tenantOf(entry);
  const { id, wrapped } = parseWrapped(value);
  const [newest] = hostKeys;
  if (unwrapped([newest], tenant, { id, wrapped }) !== null) return value;
  const bytes = unwrapped(hostKeys, tenant, { id, wrapped });
  if (bytes === null) return null;
  const again = wrappedBy(newest, tenant, { id, bytes });
  bytes.fill(0);
  return again;
}

/** The key, with the first of the Host's keys that opens it; null: none does. */
export function unwrapped(hostKeys: readonly KeyObject[], tenant: string, { id, wrapped }: WrappedKey): Buffer | null {
  for (const hostKey of hostKeys) {
    const bytes = open(hostKey, Buffer.from(wrapped, 'base64'), wrapContext(tenant, id));
    if (bytes !== null) return bytes;
  }
  return null;
}

/** What an entry holds once the Host's key has wrapped it. */
export function wrappedBy(
  hostKey: KeyObject,
  tenant: string,
  { id, bytes }: { readonly id: string; readonly bytes: Uint8Array },
): string {
  const wrapped = seal(hostKey, bytes, { context: wrapContext(tenant, id) }).toString('base64');
  const value: WrappedKey = { id, wrapped };
  return JSON.stringify(value);
}

/** Two different pairs never give the same text: a token has no space. */
export function boundTo(tenant: string, context: string): string {
  return `${escapeToken(tenant)} ${context}`;
}

function wrapContext(tenant: string, id: string): string {
  return boundTo(tenant, `data key ${id}`);
}

/** The entry of a tenant's data key. */
export function keyEntry(tenant: string): string {
  return `key.${escapeToken(tenant)}`;
}

/** The tenant of such an entry. */
export function tenantOf(entry: string): string {
  return unescapeToken(entry.slice(entry.indexOf('.') + 1));
}

export function parseWrapped(value: string): WrappedKey {
  // Written by `wrappedBy`.
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  return JSON.parse(value) as WrappedKey;
}
