import { connect } from 'node:net';
import { setPriority } from 'node:os';
import { setTimeout as pause } from 'node:timers/promises';
import { rotation, Tenant } from './tenant.ts';
import { Lines, request } from './wire.ts';

/**
 * One tenant that does all it can to be felt by others: reads, uploads that send a byte now and then, streams, turns whose
 * model hangs, messages without end. A process of its own, which yields the processors to the Host: what is measured beside it
 * is what the Host lets through, not its clients. Runs until it is ended.
 */
const { ADDRESS = '', TENANT = '', KEY = '', SESSIONS = '' } = process.env;

const READERS = 40;
const SENDERS = 24;
const STREAMS = 64;
const UPLOADS = 64;
const TRICKLE_MS = 500;
const AFTER_FAILURE_MS = 50;
/** How often it says how many answers it has got. */
const TOLD_MS = 100;
const HANGS = JSON.stringify({ fixture: [{ text: 'late', delayMs: 60_000 }] });

setPriority(19);
// Whoever started it holds the other end, and may be killed.
process.stdin.on('end', () => process.exit()).resume();
const tenant = Tenant.of({ id: TENANT, key: KEY });
const sessions = SESSIONS.split(',');
const next = rotation(sessions);

let answers = 0;
setInterval(() => process.stdout.write(`${answers}\n`), TOLD_MS);

/** Sends without end on a connection of its own; whatever is answered is what it wanted. */
async function flood(text: () => string): Promise<never> {
  for (;;) {
    const lines = new Lines(ADDRESS);
    try {
      for (;;) {
        await lines.send(text());
        answers++;
      }
    } catch {
      // It was cut off, and comes back.
      await pause(AFTER_FAILURE_MS);
    } finally {
      lines.close();
    }
  }
}

/** Holds a request open for as long as it may. */
async function hold(head: () => string, byte: string): Promise<never> {
  const [host = '', port = ''] = ADDRESS.split(':');
  for (;;) {
    const socket = connect({ host, port: Number(port) });
    socket.on('error', () => undefined);
    socket.resume();
    socket.write(head(), 'latin1');
    while (!socket.destroyed && socket.readyState !== 'closed') {
      await pause(TRICKLE_MS);
      if (socket.readableEnded) socket.destroy();
      else if (byte !== '') socket.write(byte);
    }
    await pause(AFTER_FAILURE_MS);
  }
}

const headers = `Authorization: Bearer ${KEY}\r\nSvc-Tenant: ${TENANT}\r\nSvc-Protocol: 8\r\n`;
const streamed = (): string => request('GET', `/v1/sessions/${next()}/events`, { headers });
let made = 0;
const upload = (): string =>
  `POST /v1/artifacts?name=slow-${made++} HTTP/1.1\r\nHost: bench\r\n${headers}Content-Type: application/octet-stream\r\nContent-Length: 1048576\r\n\r\n`;

const reads = [
  () => tenant.list(200),
  () => tenant.page(next(), 'limit=200'),
  () => request('GET', '/v1/tenant/usage?groupBy=session&limit=1000', { headers }),
];
const many = (count: number, work: (n: number) => Promise<never>): Promise<never>[] =>
  Array.from({ length: count }, async (_, n) => await work(n));

await Promise.all([
  ...many(READERS, async (n) => await flood(reads[n % reads.length] ?? upload)),
  ...many(SENDERS, async () => await flood(() => tenant.message(next(), HANGS))),
  ...many(STREAMS, async () => await hold(streamed, '')),
  ...many(UPLOADS, async () => await hold(upload, 'x')),
]);
