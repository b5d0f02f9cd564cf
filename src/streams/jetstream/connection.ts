import { readFile } from 'node:fs/promises';
import { connect } from '@nats-io/transport-node';
import type { NatsConnection } from '@nats-io/transport-node';
import { hearErrorsToTheEnd } from './broken-socket.ts';

/** Older servers silently drop the options that they do not know. */
export const REQUIRED_SERVER = { major: 2, minor: 12 } as const;
/** Minimum `max_payload` of the server, bytes: a 1 MiB command body must fit with its envelope. */
export const REQUIRED_PAYLOAD = 4 * 1024 * 1024;

/**
 * Appends, reads, live tails and consumers have connections of their own: a slow tail must not delay an
 * acknowledgement, and a connection that the server drops because too much is read on it must take nothing else with
 * it.
 */
export interface NatsConnections {
  /** Also for what an append must know of the log before it continues. */
  readonly appends: NatsConnection;
  readonly reads: NatsConnection;
  readonly live: NatsConnection;
  readonly consumers: NatsConnection;
}

export interface NatsTrust {
  /** CA certificates (PEM file) that the servers' must be signed by; absent: those that the system trusts. */
  readonly caFile?: string | undefined;
}

/** The server cannot be used: a plain line that says what to do. */
export class NatsSetupError extends Error {}

/**
 * Connects, and refuses a server that cannot hold the log. Once connected, each connection reconnects forever.
 * @throws NatsSetupError
 */
export async function connectNats(url: string, name: string, { caFile }: NatsTrust = {}): Promise<NatsConnections> {
  hearErrorsToTheEnd();
  const options = { ...connectionOptions(url), ...(await trusting(url, caFile)) };
  const open = async (part: string): Promise<NatsConnection> => {
    try {
      return await connect({ ...options, name: `${name} ${part}` });
    } catch (cause) {
      throw new NatsSetupError(
        `NATS cannot be reached or refuses the credentials of NATS_URL (${reasonOf(cause)}). Check NATS_URL and the server.`,
        { cause },
      );
    }
  };
  const appends = await open('appends');
  try {
    checkServer(appends);
  } catch (error) {
    await appends.close();
    throw error;
  }
  const [reads, live, consumers] = await Promise.all([open('reads'), open('live'), open('consumers')]);
  return { appends, reads, live, consumers };
}

export async function closeNats(connections: NatsConnections): Promise<void> {
  const { live, consumers, reads, appends } = connections;
  await Promise.all([live.close(), consumers.close(), reads.close()]);
  await appends.close();
}

/** Tells whether a connection is up, as far as its client knows. */
export function watchConnection(connection: NatsConnection): () => boolean {
  let connected = true;
  const watch = async (): Promise<void> => {
    for await (const { type } of connection.status()) {
      if (type === 'disconnect') connected = false;
      if (type === 'reconnect') connected = true;
    }
  };
  void watch();
  return () => connected;
}

/** `url`: one server or several of a cluster, separated by commas; whichever can be reached is used. */
function connectionOptions(url: string): Parameters<typeof connect>[0] {
  const servers = url.split(',').map(serverOf);
  // The credentials of the URL are passed on by name: a client that left them out would look like a refused server.
  const { username = '', password = '' } = servers.find((server) => server.username !== '') ?? {};
  const user = decodeURIComponent(username);
  const pass = decodeURIComponent(password);
  return {
    servers: servers.map(({ hostname, port }) => `${hostname}:${port === '' ? '4222' : port}`),
    ...(user === '' ? {} : pass === '' ? { token: user } : { user, pass }),
    maxReconnectAttempts: -1,
    reconnectTimeWait: 100,
    reconnectJitter: 100,
    timeout: 5_000,
    // Otherwise the client captures three stacks for each request, for errors that hardly ever happen.
    noAsyncTraces: true,
    pingInterval: 5_000,
    maxPingOut: 2,
    // Otherwise the second refusal, however long after the first, closes the connection for good. A server that was
    // suspended, or is overloaded, refuses a client whose credentials it has not read within seconds.
    ignoreAuthErrorAbort: true,
  };
}

/** The client refuses a `tls://` server that does not offer TLS, whatever it says in the clear. */
async function trusting(url: string, caFile: string | undefined): Promise<Parameters<typeof connect>[0]> {
  const isTls = url.split(',').some((text) => serverOf(text).protocol === 'tls:');
  if (caFile === undefined) return isTls ? { tls: {} } : {};
  if (!isTls) {
    throw new NatsSetupError(
      'NATS_CA_FILE is set, and NATS_URL is not of tls://. Write tls:// there, or unset the file.',
    );
  }
  try {
    return { tls: { ca: await readFile(caFile, 'utf8') } };
  } catch (cause) {
    throw new NatsSetupError(
      `The file of NATS_CA_FILE cannot be read (${reasonOf(cause)}). Name the file of the certificates that NATS's are signed by.`,
      { cause },
    );
  }
}

function serverOf(text: string): URL {
  const address = text.trim();
  try {
    return new URL(address.includes('://') ? address : `nats://${address}`);
  } catch (cause) {
    throw new NatsSetupError(
      'NATS_URL is not a URL. Write nats://user:password@host:4222, several servers of a cluster separated by commas.',
      { cause },
    );
  }
}

function checkServer(connection: NatsConnection): void {
  const info = connection.info;
  const [major = 0, minor = 0] = (info?.version ?? '0.0').split('.').map(Number);
  const { major: needMajor, minor: needMinor } = REQUIRED_SERVER;
  if (major < needMajor || (major === needMajor && minor < needMinor)) {
    throw new NatsSetupError(
      `nats-server ${info?.version ?? '?'} is too old: ${needMajor}.${needMinor} or newer is needed. Upgrade the server that NATS_URL names.`,
    );
  }
  if (info?.jetstream !== true) {
    throw new NatsSetupError('The nats-server runs without JetStream. Start it with JetStream on.');
  }
  if ((info.max_payload ?? 0) < REQUIRED_PAYLOAD) {
    throw new NatsSetupError(
      `The nats-server takes messages of ${info.max_payload} bytes at most. Set max_payload to ${REQUIRED_PAYLOAD} or more (8 MiB is advised).`,
    );
  }
}

function reasonOf(cause: unknown): string {
  return cause instanceof Error ? cause.message.toLowerCase() : 'unknown reason';
}
