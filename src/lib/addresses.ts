import { BlockList, isIP } from 'node:net';

/**
 * Which addresses a Host calls when a tenant names them. It would otherwise lend its place in the network to whoever can
 * write a URL: the services that clouds offer their machines hand out credentials to any caller.
 */

const FORBIDDEN = new BlockList();

/** Link-local (the metadata services of most clouds), the unspecified and multicast addresses, and what is known beside. */
const FORBIDDEN_V4 = [
  ['0.0.0.0', 8],
  ['169.254.0.0', 16],
  ['224.0.0.0', 3],
  ['100.100.100.200', 32],
  ['168.63.129.16', 32],
  ['192.0.0.192', 32],
] as const;
for (const [network, bits] of FORBIDDEN_V4) FORBIDDEN.addSubnet(network, bits, 'ipv4');

/** The same of version 6. Amazon and Google have such services below fd00:ec2:: and fd20:ce::, and add to them. */
const FORBIDDEN_V6 = [
  ['::', 128],
  ['fe80::', 10],
  ['fec0::', 10],
  ['ff00::', 8],
  ['fd00:ec2::', 32],
  ['fd20:ce::', 32],
] as const;
for (const [network, bits] of FORBIDDEN_V6) FORBIDDEN.addSubnet(network, bits, 'ipv6');

// Addresses of version 4 within version 6. Machines without version 4 reach the rest of the world by the first of them,
// so it is refused only where the address within is, or is this machine's. The others are of the past (IPv4-compatible,
// 6to4, Teredo) or of translators alone, and in the networks' own ones nobody knows where the address stands.
for (const [network, bits] of [...FORBIDDEN_V4, ['127.0.0.0', 8] as const]) {
  FORBIDDEN.addSubnet(`64:ff9b::${network}`, 96 + bits, 'ipv6');
}
FORBIDDEN.addSubnet('64:ff9b:1::', 48, 'ipv6');
FORBIDDEN.addSubnet('2002::', 16, 'ipv6');
FORBIDDEN.addSubnet('2001::', 32, 'ipv6');
FORBIDDEN.addSubnet('::ffff:0:0:0', 96, 'ipv6');
FORBIDDEN.addRange('::2', '::ffff:ffff', 'ipv6');

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
  const bare = bareHost(hostname);
  const family = familyOf(bare);
  return bare === 'localhost' || (family !== null && LOOPBACK.check(bare, family));
}

/** Whether a Host calls addresses that begin like this one on behalf of a tenant: as `isCallableUrl`, and with nothing behind. */
export function isCallableBaseUrl(text: string): boolean {
  if (!isCallableUrl(text)) return false;
  const { search, hash } = new URL(text);
  return search === '' && hash === '';
}

/**
 * Whether a Host calls this address on behalf of a tenant: https, or http on loopback; without credentials in it, and
 * not one that `isCallableIp` refuses. What a name stands for is looked at when the connection is made.
 */
export function isCallableUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, hostname, username, password } = new URL(text);
  if (username !== '' || password !== '') return false;
  const loopback = isLoopbackHost(hostname);
  if (protocol !== 'https:' && !(protocol === 'http:' && loopback)) return false;
  const bare = bareHost(hostname);
  if (isIP(bare) !== 0) return isCallableIp(bare, loopback ? 'loopback' : 'other');
  return bare !== '' && !METADATA_NAMES.includes(bare);
}

/** Without the brackets of version 6, and without the dots at the end that name the same host. */
function bareHost(hostname: string): string {
  return hostname.replace(/^\[|\]$/g, '').replace(/\.+$/, '');
}

function familyOf(address: string): 'ipv4' | 'ipv6' | null {
  const version = isIP(address);
  return version === 4 ? 'ipv4' : version === 6 ? 'ipv6' : null;
}
