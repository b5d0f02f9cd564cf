/** Where a request of a command is to go. `host` as a URL names it, in lower case. */
export interface Target {
  readonly host: string;
  readonly port: number;
}

/** The ports of an allowed host that names none. */
const DEFAULT_PORTS: readonly number[] = [443, 80];

/** Whether `network.allow` of a spec names a target: `host`, `host:port`, or `*.domain` for all names below it. */
export function allowsTarget(allow: readonly string[], { host, port }: Target): boolean {
  const name = bare(host);
  return allow.some((entry) => {
    const [pattern = '', ownPort] = entry.split(':');
    const ports = ownPort === undefined ? DEFAULT_PORTS : [Number(ownPort)];
    return ports.includes(port) && fits(bare(pattern), name);
  });
}

function fits(pattern: string, name: string): boolean {
  if (!pattern.startsWith('*.')) return pattern === name;
  const suffix = pattern.slice(1);
  return name.endsWith(suffix) && name.length > suffix.length;
}

/** A dot at the end names the same host. */
function bare(host: string): string {
  return host.toLowerCase().replace(/\.+$/, '');
}
