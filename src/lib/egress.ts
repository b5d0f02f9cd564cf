import ipaddr from 'ipaddr.js';

/**
 * Which addresses the Host calls when a tenant names them (a model's baseUrl, an issuer's jwksUrl). It would otherwise
 * lend its place in the network to anyone who can write a URL: internal services trust their neighbours, and the
 * metadata services of clouds hand out credentials to any caller.
 */
export interface EgressPolicy {
  /**
   * Whether a URL may be called, as far as its text says: https, or http where the operator named the host or meant
   * loopback; no credentials in it; a literal address must be one that `allowsAddress` takes.
   */
  allowsUrl(url: string): boolean;
  /** Whether a connection may be made to an IP address that a host of a URL (`hostname`, as written there) resolved to. */
  allowsAddress(address: string, hostname: string): boolean;
}

/** A policy has a part that cannot be understood; the message says what is valid. */
export class EgressSyntaxError extends Error {}

type Address = ipaddr.IPv4 | ipaddr.IPv6;
type Network = readonly [Address, number];

interface Rules {
  isPublic: boolean;
  isLoopback: boolean;
  readonly hosts: Set<string>;
  /** Suffixes with their leading dot. */
  readonly domains: string[];
  readonly networks: Network[];
}

/** Answers of these machines hand out credentials or belong to the cloud's fabric; no policy opens them. */
const METADATA_NAMES = new Set(['metadata', 'metadata.google.internal', 'metadata.goog']);
const METADATA_NETWORKS = [
  '100.100.100.200/32',
  '168.63.129.16/32',
  '192.0.0.192/32',
  'fd00:ec2::/32',
  'fd20:ce::/32',
].map((text) => ipaddr.parseCIDR(text));
/**
 * Never meant by someone who names a server: link-local (most metadata services), unspecified, multicast and broadcast;
 * and obsolete or translated addresses, which hide another address.
 */
const NEVER = new Set<string>([
  ...['linkLocal', 'unspecified', 'broadcast', 'multicast'],
  ...['deprecatedSiteLocal', '6to4', 'teredo', 'rfc6145'],
]);
const WELL_KNOWN_NAT64 = ipaddr.parseCIDR('64:ff9b::/96');
/** The same: IPv4-compatible addresses, and NAT64 within one network, where only that network knows what it stands for. */
const HIDING = ['::/96', '64:ff9b:1::/48'].map((text) => ipaddr.parseCIDR(text));

/**
 * Reads a policy: parts separated by commas, each of which adds what may be called.
 * `public`: whatever is routed on the public internet; `loopback`: this machine, named as such; a host name, or
 * `*.domain` for all names below it; a network or an address (`10.1.0.0/16`, `fd12::/48`, `10.1.2.3`).
 * @throws EgressSyntaxError
 */
export function egressPolicy(text: string): EgressPolicy {
  const rules: Rules = { isPublic: false, isLoopback: false, hosts: new Set(), domains: [], networks: [] };
  for (const part of text.split(',').map((one) => one.trim().toLowerCase())) addRule(rules, part);
  return {
    allowsUrl: (url) => allowsUrl(rules, url),
    allowsAddress: (address, hostname) => allowsAddress(rules, address, hostname),
  };
}

function addRule(rules: Rules, part: string): void {
  if (part === 'public') rules.isPublic = true;
  else if (part === 'loopback') rules.isLoopback = true;
  else if (ipaddr.isValidCIDR(part)) rules.networks.push(ipaddr.parseCIDR(part));
  else if (ipaddr.IPv4.isValidFourPartDecimal(part) || ipaddr.IPv6.isValid(part)) {
    const address = ipaddr.parse(part);
    rules.networks.push([address, address.kind() === 'ipv4' ? 32 : 128]);
  } else if (/^\*(\.[a-z0-9_-]+)+$/.test(part)) rules.domains.push(part.slice(1));
  else if (/^(?=.*[a-z])[a-z0-9_-]+(\.[a-z0-9_-]+)*$/.test(part)) rules.hosts.add(part);
  else {
    throw new EgressSyntaxError(
      `has a part that cannot be read (${part}); write public, loopback, host names, *.domain or networks such as 10.1.0.0/16, separated by commas`,
    );
  }
}

function allowsUrl(rules: Rules, text: string): boolean {
  if (!isCallableForm(text)) return false;
  const { protocol, hostname } = new URL(text);
  const host = bareHost(hostname);
  if (METADATA_NAMES.has(host)) return false;
  const literal = addressOf(host);
  if (literal !== null && !allowsAddress(rules, host, host)) return false;
  // In the clear only where no network is crossed, or where the operator named the server and so vouches for the path.
  if (isNamed(rules, host) || (literal !== null && isWithin(rules.networks, literal))) return true;
  if (isLoopbackHost(host)) return rules.isLoopback;
  return protocol === 'https:' && (rules.isPublic || rules.networks.length > 0);
}

function allowsAddress(rules: Rules, text: string, hostname: string): boolean {
  const address = addressOf(text);
  if (address === null || isNever(address)) return false;
  const host = bareHost(hostname);
  if (isWithin(rules.networks, address) || isNamed(rules, host)) return true;
  const range = address.range();
  // A name that turns out to be this machine was not meant to be it.
  if (range === 'loopback') return rules.isLoopback && isLoopbackHost(host);
  return rules.isPublic && range === 'unicast';
}

function isNamed({ hosts, domains }: Rules, host: string): boolean {
  return hosts.has(host) || domains.some((domain) => host.endsWith(domain) && host.length > domain.length);
}

function isNever(address: Address): boolean {
  return (
    NEVER.has(address.range()) ||
    METADATA_NETWORKS.some((network) => isIn(address, network)) ||
    HIDING.some((network) => isIn(address, network) && address.range() !== 'loopback')
  );
}

function isWithin(networks: readonly Network[], address: Address): boolean {
  return networks.some((network) => isIn(address, network));
}

function isIn(address: Address, network: Network): boolean {
  return address.kind() === network[0].kind() && address.match([network[0], network[1]]);
}

/**
 * What a connection to this address really reaches: the IPv4 address within, where IPv6 carries one (IPv4-mapped, and the
 * well-known prefix of NAT64, by which machines without IPv4 reach the rest of the world). Null: not an address.
 */
function addressOf(text: string): Address | null {
  if (text.includes('%') || !(ipaddr.IPv4.isValidFourPartDecimal(text) || ipaddr.IPv6.isValid(text))) return null;
  const address = ipaddr.parse(text);
  if (!(address instanceof ipaddr.IPv6)) return address;
  if (address.isIPv4MappedAddress()) return address.toIPv4Address();
  if (isIn(address, WELL_KNOWN_NAT64)) return new ipaddr.IPv4(address.toByteArray().slice(12));
  return address;
}

/** Whether any policy could allow a URL: http or https, and without credentials in it. */
export function isCallableForm(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, hostname, username, password } = new URL(text);
  return (
    (protocol === 'https:' || protocol === 'http:') && username === '' && password === '' && bareHost(hostname) !== ''
  );
}

/** As `isCallableForm`, for an address that paths are appended to: it has no query or fragment. */
export function isCallableBase(text: string): boolean {
  if (!isCallableForm(text)) return false;
  const { search, hash } = new URL(text);
  return search === '' && hash === '';
}

/** Whether a host, as written in a URL, names this machine. */
export function isLoopbackHost(hostname: string): boolean {
  const host = bareHost(hostname);
  return host === 'localhost' || addressOf(host)?.range() === 'loopback';
}

/** Without the brackets of IPv6, and without the dots at the end that name the same host. */
function bareHost(hostname: string): string {
  return hostname
    .toLowerCase()
    .replace(/^\[|\]$/g, '')
    .replace(/\.+$/, '');
}
