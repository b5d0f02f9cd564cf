import { z } from 'zod';
import { StartError } from '../lib/start-error.ts';

/** Kinds of environment variables. */
export const whole = (min: number, max: number) => {
  const error = `must be a whole number from ${min} to ${max}`;
  return z.coerce.number({ error }).int({ error }).min(min, { error }).max(max, { error });
};

export const oneOf = <const T extends readonly [string, ...string[]]>(values: T) =>
  z.enum(values, { error: `must be one of ${values.join(', ')}` });

export const httpAddress = z.url({ protocol: /^https?$/, error: 'must be an http or https address' });

export const listen = z.string().regex(/^(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):\d{1,5}$/, 'must be host:port');

export interface Address {
  readonly host: string;
  readonly port: number;
}

/** What a text in the form of `listen` names. @throws StartError */
export function addressOf(text: string): Address {
  const at = text.lastIndexOf(':');
  const port = Number(text.slice(at + 1));
  if (port > 65_535) throw new StartError(`${text} has no valid port; use one from 0 to 65535`);
  return { host: text.slice(0, at).replace(/^\[|\]$/g, ''), port };
}
