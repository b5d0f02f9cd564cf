import { createHmac } from 'node:crypto';
import { z } from 'zod';
import { timestamp } from '../../lib/clock.ts';
import type { Clock } from '../../lib/clock.ts';
import { equalInConstantTime } from '../../lib/hash.ts';

/** What a link opens, for a time, to anyone who has it. */
export interface LinkTarget {
  readonly tenant: string;
  readonly artifactId: string;
  readonly version: number;
}

/** Maximum and default lifetime of a link, seconds. */
export const LINK_SECONDS_MAX = 900;
export const LINK_SECONDS_DEFAULT = 300;

const payload = z.strictObject({ t: z.string(), a: z.string(), v: z.int().min(1), e: z.int() });
const TOKEN = /^([A-Za-z0-9_-]{1,600})\.([0-9a-f]{64})$/;

/** Signs links with a key of the whole installation, so that any node opens what any other made. Nothing is stored. */
export class LinkSigner {
  readonly #key: string;
  readonly #clock: Clock;

  /** @param secret the Host admin key; the key of the links is derived from it and from nothing else */
  constructor(secret: string, clock: Clock) {
    this.#key = createHmac('sha256', secret).update('artifact-links').digest('hex');
    this.#clock = clock;
  }

  sign({ tenant, artifactId, version }: LinkTarget, seconds: number): { token: string; expiresAt: string } {
    const expiresMs = this.#clock() + seconds * 1_000;
    const text = JSON.stringify({ t: tenant, a: artifactId, v: version, e: expiresMs });
    const body = Buffer.from(text).toString('base64url');
    return { token: `${body}.${this.#mac(body)}`, expiresAt: timestamp(expiresMs) };
  }

  /** What the link opens; `expired`, if it has; `unknown`: it is not one of ours. */
  open(token: string): LinkTarget | 'expired' | 'unknown' {
    const [, body = '', mac = ''] = TOKEN.exec(token) ?? [];
    if (body === '' || !equalInConstantTime(mac, this.#mac(body))) return 'unknown';
    const { t, a, v, e } = payload.parse(JSON.parse(Buffer.from(body, 'base64url').toString()));
    if (e <= this.#clock()) return 'expired';
    return { tenant: t, artifactId: a, version: v };
  }

  #mac(body: string): string {
    return createHmac('sha256', this.#key).update(body).digest('hex');
  }
}
