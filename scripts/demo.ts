/**
 * `npm run demo`: a tenant, an agent, a session and one turn, with its events as they come and the ledger of its model
 * calls. It starts a Host of its own on a temporary directory and leaves nothing behind; with AGENT_HOST_URL and
 * AGENT_HOST_ADMIN_KEY it uses a running one, where the demo's tenant stays.
 */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { buildProgram } from './build.ts';

/** What the fixture model will answer, a step for each time that it is asked. */
const SCRIPT = {
  fixture: [
    { text: 'Let me look at the forecast.', toolCalls: [{ name: 'weather', input: { city: 'Lisbon' } }] },
    { delayMs: 700, error: { code: 'overloaded', message: 'The provider is busy.', retryable: true } },
    { delayMs: 900, text: 'I have no weather tool. Take a coat, to be on the safe side.' },
  ],
};
const TURN_MS = 60_000;

interface HistoryRecord {
  readonly type: string;
  readonly turnId: string | null;
  readonly payload: {
    readonly content?: string;
    readonly text?: string;
    readonly toolCalls?: readonly { readonly name: string; readonly input: unknown }[];
    readonly output?: unknown;
    readonly error?: { readonly message: string };
  };
}

interface Call {
  readonly id: string;
  readonly outcome: string;
  readonly usage: { readonly inputTokens: number; readonly outputTokens: number; readonly costUsd: number };
}

interface Host {
  readonly url: string;
  readonly adminKey: string;
  readonly stop: () => Promise<void>;
}

type Headers = Readonly<Record<string, string>>;
type Caller = <T>(method: 'GET' | 'POST' | 'PUT', path: string, body?: object) => Promise<T>;

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** Requests with this key; a refusal is thrown with the Host's own words. */
function callerWith(url: string, headers: Headers): Caller {
  return async <T>(method: string, path: string, body?: object): Promise<T> => {
    const response = await fetch(`${url}${path}`, {
      method,
      headers: { ...headers, 'svc-protocol': '8', 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path} was answered ${response.status}: ${text}`);
    const answer: T = JSON.parse(text);
    return answer;
  };
}

/** A Host of its own, with none of the settings that the environment has for another one. */
async function startHost(environment: NodeJS.ProcessEnv, stopping: AbortSignal): Promise<Host> {
  const directory = await mkdtemp(join(tmpdir(), 'agent-host-demo-'));
  const theirs = /^(AGENT_HOST_|S3_|NATS_URL$|DATABASE_URL$)/;
  const kept = Object.fromEntries(Object.entries(environment).filter(([name]) => !theirs.test(name)));
  const env = {
    ...kept,
    AGENT_HOST_DATA_DIR: directory,
    AGENT_HOST_LISTEN: '127.0.0.1:0',
    AGENT_HOST_FIXTURE_MODEL: '1',
    AGENT_HOST_LOG_LEVEL: 'warn',
  };
  say(`Starting a Host in ${directory}`);
  const child = spawn(process.execPath, [await buildProgram()], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
    // A Ctrl-C is for the demo, which then stops its Host; so is one that the terminal sends to the whole group.
    detached: true,
  });
  const ended = new Promise<number | null>((resolve) => child.once('exit', resolve));
  const stop = async (): Promise<void> => {
    child.kill('SIGTERM');
    await ended;
    await rm(directory, { recursive: true, force: true });
  };
  stopping.addEventListener('abort', () => child.kill('SIGTERM'), { once: true });
  try {
    await ready(child, ended);
    const listen = (await readFile(join(directory, 'listen'), 'utf8')).trim();
    const adminKey = (await readFile(join(directory, 'admin-key'), 'utf8')).trim();
    return { url: `http://${listen}`, adminKey, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Shows what the Host says until it is ready; a first start may have to fetch things, which it tells. */
async function ready(child: ChildProcess, ended: Promise<unknown>): Promise<void> {
  if (child.stdout === null) throw new Error('the Host has no output');
  const lines = createInterface({ input: child.stdout });
  const isReady = new Promise<boolean>((resolve) => {
    let showing = true;
    // Read to the end, although no longer shown: a full pipe would stop the Host.
    lines.on('line', (line) => {
      if (line.startsWith('Ready')) showing = false;
      if (showing && line !== '') say(`  ${line}`);
      if (!showing) resolve(true);
    });
  });
  if (!(await Promise.race([isReady, ended.then(() => false)])))
    throw new Error('the Host ended before it was ready; it says above why');
}

/** Opens the session's event stream. Resolves once the Host has answered; the records then come one by one. */
async function follow(url: string, headers: Headers): Promise<AsyncGenerator<HistoryRecord>> {
  const signal = AbortSignal.timeout(TURN_MS);
  const response = await fetch(url, { headers: { ...headers, 'svc-protocol': '8' }, signal });
  if (!response.ok || response.body === null) throw new Error(`the stream was answered ${response.status}`);
  return records(response.body);
}

async function* records(body: AsyncIterable<Uint8Array>): AsyncGenerator<HistoryRecord> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of body) {
    const frames = `${rest}${decoder.decode(chunk, { stream: true })}`.split('\n\n');
    rest = frames.pop() ?? '';
    for (const frame of frames) {
      // The control frame `ready` and the comments that keep the stream alive have no id.
      const data = /^id: .*\nevent: .*\ndata: (.*)$/.exec(frame)?.[1];
      if (data === undefined) continue;
      const record: HistoryRecord = JSON.parse(data);
      yield record;
    }
  }
}

function described({ type, payload }: HistoryRecord): string {
  const { content, text, toolCalls = [], output, error } = payload;
  const said = error?.message ?? text ?? (typeof output === 'string' ? output : (content ?? ''));
  const calls = toolCalls.map(({ name, input }) => `[calls ${name} ${JSON.stringify(input)}]`);
  const line = [said, ...calls].join(' ');
  return `${type.padEnd(18)} ${line.length > 90 ? `${line.slice(0, 90)} …` : line}`;
}

async function play({ url, adminKey }: Host): Promise<void> {
  const admin = callerWith(url, { authorization: `Bearer ${adminKey}` });
  const created = await admin<{ tenant: { id: string }; applicationKey: string }>('POST', '/v1/admin/tenants', {
    name: 'Demo',
    idempotencyKey: randomUUID(),
  });
  const headers = { authorization: `Bearer ${created.applicationKey}`, 'svc-tenant': created.tenant.id };
  const application = callerWith(url, headers);
  const manifest = { instructions: 'Be brief.', model: { provider: 'fixture', model: 'any' } };
  const agent = await application<{ agentId: string; version: number }>('PUT', '/v1/agents/helper', { manifest });
  const session = await application<{ id: string }>('PUT', '/v1/sessions/first', { agentId: agent.agentId });
  say(`Tenant ${created.tenant.id}, agent ${agent.agentId} (version ${agent.version}), session ${session.id}`);
  const message = { type: 'message', requestId: randomUUID(), idempotencyKey: randomUUID() };
  const stream = await follow(`${url}/v1/sessions/first/events`, headers);
  const sentAt = performance.now();
  const sent = { ...message, content: JSON.stringify(SCRIPT) };
  const { turnId } = await application<{ turnId: string }>('POST', '/v1/sessions/first/commands', sent);
  say(`Turn ${turnId}\n\nIts events, with the time since the message was sent:\n`);
  for await (const record of stream) {
    say(
      `${Math.round(performance.now() - sentAt)
        .toString()
        .padStart(6)} ms  ${described(record)}`,
    );
    if (record.turnId === turnId && /^turn\.(completed|failed|cancelled)$/.test(record.type)) break;
  }
  const { calls } = await application<{ calls: readonly Call[] }>('GET', '/v1/sessions/first/calls/model');
  say('\nThe ledger of its model calls, the failed one that was tried again included:\n');
  for (const { id, outcome, usage } of calls) {
    const tokens = `${usage.inputTokens} tokens in, ${usage.outputTokens} out`;
    say(`  ${id}  ${outcome.padEnd(9)}  ${tokens}, ${usage.costUsd} USD`);
  }
}

// oxlint-disable-next-line node/no-process-env -- the entry of a program of its own
const environment = process.env;
const { AGENT_HOST_URL: url, AGENT_HOST_ADMIN_KEY: adminKey = '' } = environment;
const stopping = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => stopping.abort());
const running = { url: url?.replace(/\/$/, '') ?? '', adminKey, stop: async () => await Promise.resolve() };
try {
  const host = url === undefined || url === '' ? await startHost(environment, stopping.signal) : running;
  try {
    await play(host);
  } finally {
    await host.stop();
  }
  say(`\n${host === running ? 'The tenant stays on that Host.' : 'The Host has stopped, its directory is removed.'}`);
} catch (error) {
  const cause = error instanceof Error && error.cause instanceof Error ? ` (${error.cause.message})` : '';
  process.stderr.write(`demo: ${error instanceof Error ? error.message : String(error)}${cause}\n`);
  process.exitCode = stopping.signal.aborted ? 130 : 1;
}
