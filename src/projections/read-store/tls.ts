import { readFileSync } from 'node:fs';
import type { ConnectionOptions } from 'node:tls';

/** Modes in which the server has to prove its identity. */
const VERIFYING = ['verify-full', 'verify-ca'];

/**
 * The address without its TLS parameters, and these as the pool takes them: the pool's own parser refuses the modes
 * that verify the server, and ignores the file of certificates. Both are checked in full, name included.
 * @throws when the file cannot be read
 */
export function tlsOf(url: string): { readonly url: string; readonly ssl?: ConnectionOptions } {
  const address = new URL(url);
  const [mode, file] = [address.searchParams.get('sslmode'), address.searchParams.get('sslrootcert')];
  if (mode === null || !(VERIFYING.includes(mode) || (mode === 'require' && file !== null))) return { url };
  address.searchParams.delete('sslmode');
  address.searchParams.delete('sslrootcert');
  const ssl = { rejectUnauthorized: true, ...(file === null ? {} : { ca: readFileSync(file, 'utf8') }) };
  return { url: address.href, ssl };
}
