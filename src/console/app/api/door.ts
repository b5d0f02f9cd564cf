/** What the console's own routes answer; everything else is the Host's API behind `/api`. */
export interface DoorSession {
  /** The tenant whose data is shown; null: none is chosen yet. */
  readonly tenant: string | null;
  /** Signed in as the operator of the Host, who may change tenants and see the Host's own state. */
  readonly host: boolean;
  /** Sent back as a header with every request that changes something. */
  readonly csrf: string;
  readonly expiresAt: string;
}

/** The sign-in has ended, or there was none. */
export class SignedOut extends Error {
  override readonly name = 'SignedOut';
}

export const CSRF_HEADER = 'x-console-csrf';
/** Whose data a page shows: one sign-in has one tenant, and may have several windows. */
export const TENANT_HEADER = 'x-console-tenant';

async function ask(path: string, init: RequestInit = {}): Promise<unknown> {
  const response = await fetch(path, { credentials: 'same-origin', ...init });
  const text = await response.text();
  if (response.status === 401) throw new SignedOut(messageOf(text) ?? 'You are not signed in.');
  if (!response.ok) throw new Error(messageOf(text) ?? `The console answered with status ${response.status}.`);
  return text === '' ? {} : JSON.parse(text);
}

function messageOf(text: string): string | null {
  try {
    const body: unknown = JSON.parse(text);
    if (typeof body === 'object' && body !== null && 'message' in body) return String(body.message);
  } catch {
    // Something in between answered.
  }
  return null;
}

function isDoorSession(value: unknown): value is DoorSession {
  return typeof value === 'object' && value !== null && 'csrf' in value && 'tenant' in value;
}

function sessionIn(body: unknown): DoorSession {
  if (!isDoorSession(body)) throw new Error('The console answered with something else than a session.');
  return body;
}

const JSON_TYPE = { 'content-type': 'application/json' };

/** @throws SignedOut without a sign-in */
export async function readSession(): Promise<DoorSession> {
  return sessionIn(await ask('/console/session'));
}

export async function signOut(csrf: string): Promise<void> {
  await ask('/console/sign-out', { method: 'POST', headers: { [CSRF_HEADER]: csrf } });
}

export async function chooseTenant(tenantId: string, csrf: string): Promise<DoorSession> {
  const headers = { ...JSON_TYPE, [CSRF_HEADER]: csrf };
  return sessionIn(await ask('/console/tenant', { method: 'POST', headers, body: JSON.stringify({ tenantId }) }));
}

/** The OpenAPI document of the Host. */
export async function readDocument(signal: AbortSignal): Promise<unknown> {
  return await ask('/api/openapi.json', { signal });
}
