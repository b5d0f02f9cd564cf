import { BlockList, isIP } from 'node:net';

/**
 * Which addresses a Host calls when a tenant names them. It would otherwise lend its place in the network to whoever can
 * write a URL: the services that clouds offer their machines hand out credentials to any caller.
 */

/** Link-local (the metadata services of most clouds), the unspecified and multicast addresses, and what is known beside. */
const FORBIDDEN = new BlockList();
FORBIDDEN.addSubnet('0.0.0.0', 8, 'ipv4');
FORBIDDEN.addSubnet('169.254.0.0', 16, 'ipv4');
FORBIDDEN.addSubnet('224.0.0.0', 3, 'ipv4');
FORBIDDEN.addAddress('100.100.100.200', 'ipv4');
FORBIDDEN.addAddress('168.63.129.16', 'ipv4');
FORBIDDEN.addAddress('192.0.0.192', 'ipv4');
FORBIDDEN.addAddress('::', 'ipv6');
FORBIDDEN.addSubnet('fe80::', 10, 'ipv6');
FORBIDDEN.addSubnet('ff00::', 8, 'ipv6');
FORBIDDEN.addAddress('fd00:ec2::254', 'ipv6');
FORBIDDEN.addAddress('fd20:ce::254', 'ipv6');
// The same addresses of version 4 behind a translator.
FORBIDDEN.addSubnet('64:ff9b::a9fe:0', 112, 'ipv6');

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet('127.0.0.0', 8, 'ipv4');
LOOPBACK.addAddress('::1', 'ipv6');

const METADATA_NAMES = ['metadata.google.internal', 'metadata.goog', 'metadata'];

/** Whether a connection may be made to this IP address, of which it is known whether its host was named as loopback. */
export function isCallableIp(address: string, named: 'loopback' | 'other'): boolean {
  const family = familyOf(address);
  if (family === null || FORBIDDEN.check(address, family)) return false;
  // A name that turns out to be this machine was not given by somebody who meant it.
  return named === 'loopback' || !LOOPBACK.check(address, family);
}

/** Whether a host, as it stands in a URL, names this machine. */
export function isLoopbackHost(hostname: string): boolean {
  const bare = withoutBrackets(hostname);
  const family = familyOf(bare);
  return bare === 'localhost' || (family !== null && LOOPBACK.check(bare, family));
}

/**
 * Whether a Host calls this address on behalf of a tenant: https, or http on loopback; without credentials in it, and
 * not one that `isCallableIp` refuses. What a name stands for is looked at when the connection is made.
 */
export function isCallableUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, hostname, username, password, search, hash } = new URL(text);
  if (username !== '' || password !== '' || search !== '' || hash !== '') return false;
  const loopback = isLoopbackHost(hostname);
  if (protocol !== 'https:' && !(protocol === 'http:' && loopback)) return false;
  const bare = withoutBrackets(hostname).replace(/\.+$/, '');
  if (isIP(bare) !== 0) return isCallableIp(bare, loopback ? 'loopback' : 'other');
  return bare !== '' && !METADATA_NAMES.includes(bare);
}

function withoutBrackets(hostname: string): string {
  return hostname.replace(/^\[|\]$/g, '');
}

function familyOf(address: string): 'ipv4' | 'ipv6' | null {
  const version = isIP(address);
  return version === 4 ? 'ipv4' : version === 6 ? 'ipv6' : null;
}
