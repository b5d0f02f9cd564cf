import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { randomBytes } from 'node:crypto';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { sessionType } from '#src/commands/aggregate.ts';
import { SNAPSHOT_EVERY, snapshotKey } from '#src/commands/repository.ts';
import { sealingKey } from '#src/lib/sealed-box.ts';
import type { Commit } from '#src/streams/commit.ts';
import { subjectOf } from '#src/streams/subjects.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { agentHost } from '../support/agent-host.ts';
import type { Ended } from '../support/agent-host.ts';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { TestNats } from '../support/nats.ts';
import { TestPostgres } from '../support/postgres.ts';
import { messagesOf, replaceMessages } from '../support/stream-copy.ts';
import type { StoredMessage } from '../support/stream-copy.ts';
import { settledReadModels } from '../support/read-models.ts';
import { until } from '../support/wait-until.ts';

const SESSIONS = ['changed', 'garbled', 'inserted', 'moved', 'open', 'removed', 'reordered', 'cut', 'whole'] as const;

/** Servers that go on when the Host has stopped, so that nothing else works on the stream while it is changed. */
async function installation(disposables: AsyncDisposableStack) {
  const [nats, postgres] = await Promise.all([TestNats.start(), TestPostgres.start()]);
  disposables.use(nats);
  disposables.use(postgres);
  const directory = await mkdtemp(join(tmpdir(), 'agent-host-audit-'));
  disposables.defer(async () => await rm(directory, { recursive: true, force: true }));
  const key = randomBytes(32);
  await writeFile(join(directory, 'kek'), key.toString('base64'));
  const env = {
    NATS_URL: nats.url,
    DATABASE_URL: await postgres.empty(),
    AGENT_HOST_KEK_FILE: join(directory, 'kek'),
    AGENT_HOST_DATA_DIR: join(directory, 'data'),
  };
  return { nats, env, key };
}

/** Each session with five commits, and one with as many as make a snapshot. */
async function fill(tenant: TenantClient): Promise<void> {
  await tenant.saveAgent();
  for (const id of [...SESSIONS, 'snapshot']) await tenant.openSession(id);
  for (const id of [...SESSIONS, ...SESSIONS]) await tenant.turnEnd(id, (await tenant.message(id, 'hello')).turnId);
  await Promise.all(Array.from({ length: SNAPSHOT_EVERY - 1 }, async () => await tenant.cancel('snapshot')));
}

/** What the stream holds of one session, to be changed in place. */
class StreamEditor {
  readonly #log: TestLog;
  readonly #tenant: string;
  readonly messages: (StoredMessage | null)[];

  constructor(log: TestLog, tenant: string, messages: readonly StoredMessage[]) {
    this.#log = log;
    this.#tenant = tenant;
    this.messages = [...messages];
  }

  ref(session: string): AggregateRef {
    return { tenant: this.#tenant, kind: 'session', id: session };
  }

  /** Where commit `rev` of a session lies. */
  place(session: string, rev: number): { index: number; message: StoredMessage; commit: Commit; name: string } {
    const subject = subjectOf(this.ref(session));
    const mine = this.messages.flatMap((message, index) => (message?.subject === subject ? [{ index, message }] : []));
    const found = mine[rev - 1];
    if (found === undefined) throw new Error(`${session} has no commit ${rev}`);
    const plain = this.#log.codec.open(this.ref(session), found.message.data);
    const commit = JSON.parse(new TextDecoder().decode(plain)) as Commit;
    return { ...found, commit, name: `${subject} at ${found.index + 1} (${commit.commitId})` };
  }

  /** The message with another commit in it, sealed as the Host would. */
  async resealed(session: string, message: StoredMessage, commit: Commit): Promise<StoredMessage> {
    const { bytes } = await this.#log.codec.encode(this.ref(session), commit);
    return { ...message, subject: subjectOf(this.ref(session)), data: bytes };
  }
}

const altered = (commit: Commit): Commit => ({ ...commit, actor: 'application:mallory' });

/** Does to each session what its name says; returns what has to be found, as `subject at sequence (commit id): …`. */
async function tamper(stream: StreamEditor): Promise<string[]> {
  const { messages } = stream;
  const at = (session: string, rev: number) => stream.place(session, rev);
  const found: string[] = [];

  const changed = at('changed', 3);
  found.push(`${changed.name}: commit 3 is not the one that commit 4 at ${at('changed', 4).index + 1}`);
  messages[changed.index] = await stream.resealed('changed', changed.message, altered(changed.commit));

  const snapshot = at('snapshot', SNAPSHOT_EVERY);
  found.push(`${snapshot.name}: is not what the snapshot of commit ${SNAPSHOT_EVERY} was made of`);
  messages[snapshot.index] = await stream.resealed('snapshot', snapshot.message, altered(snapshot.commit));

  const garbled = at('garbled', 3);
  found.push(`${garbled.name}: cannot be read: what is sealed`);
  messages[garbled.index] = {
    ...garbled.message,
    data: garbled.message.data.map((byte, n) => (n === 60 ? byte ^ 1 : byte)),
  };

  const open = at('open', 4);
  found.push(`${open.name}: cannot be read: a chained commit is not sealed`);
  messages[open.index] = { ...open.message, data: new TextEncoder().encode(JSON.stringify(open.commit)) };

  const moved = at('moved', 5);
  const whole = at('whole', 5);
  found.push(`${at('moved', 4).name}: commit 4 is not the one that commit 5 at ${moved.index + 1}`);
  messages[moved.index] = await stream.resealed('moved', moved.message, whole.commit);

  const [third, fourth] = [at('reordered', 3), at('reordered', 4)];
  const swapped = (commit: Commit, index: number): string =>
    `${subjectOf(stream.ref('reordered'))} at ${index + 1} (${commit.commitId}): commit ${commit.rev} follows commit`;
  found.push(swapped(fourth.commit, third.index), swapped(third.commit, fourth.index));
  found.push(`${at('reordered', 5).name}: commit 5 follows commit 3`);
  [messages[third.index], messages[fourth.index]] = [fourth.message, third.message];

  // A message that is put in needs a place; it takes that of the one that is taken out.
  const [removed, inserted] = [at('removed', 5), at('inserted', 2)];
  const subject = subjectOf(stream.ref('inserted'));
  found.push(`${subject} at ${removed.index + 1} (${inserted.commit.commitId}): commit 2 follows commit 5 at `);
  found.push(`${subjectOf(stream.ref('removed'))} at ${removed.index + 1}: a read model has seen a commit here`);
  const middle = at('removed', 2);
  found.push(`${at('removed', 3).name}: commit 3 follows commit 1 at `);
  messages[removed.index] = { ...inserted.message, msgID: 'another' };
  messages[middle.index] = null;

  const cut = at('cut', 5);
  found.push(
    `${subjectOf(stream.ref('cut'))} at ${cut.index + 1}: a read model has seen a commit here, the log ends with commit 4`,
  );
  messages[cut.index] = null;
  return found;
}

test('each way to tamper with the stored messages is found and named', { timeout: 360_000 }, async () => {
  await using disposables = new AsyncDisposableStack();
  const { nats, env, key } = await installation(disposables);
  const host = disposables.use(await startHost({ env: { ...env, AGENT_HOST_LOG_SHARDS: '1' } }));
  const tenant = await new AdminClient(host).createTenant();
  await fill(tenant);
  const log = disposables.use(await openLog(nats.url, { hostKey: sealingKey(key) }));
  const snapshots = log.topology.buckets.snapshots;
  const ref = { tenant: tenant.tenantId, kind: 'session', id: 'snapshot' } as const;
  await until('the snapshot is there', async () => (await snapshots.get(snapshotKey(ref, sessionType))) !== null);
  for (const id of SESSIONS) await settledReadModels(tenant, id);
  await host.stop();
  const verify = async (...args: string[]): Promise<Ended> => await agentHost(env, 'audit', 'verify', ...args);
  expect(await verify()).toMatchObject({ code: 0, text: expect.stringMatching(/ 0 erased, 0 problems\n/) as string });

  const { manager } = log.topology;
  const stream = new StreamEditor(log, tenant.tenantId, await messagesOf(manager));
  const expected = await tamper(stream);
  await replaceMessages(log.connections.appends, manager, stream.messages);
  const { code, text } = await verify();
  expect(code).toBe(1);
  const lines = text.split('\n').filter((line) => line.startsWith('evt.'));
  for (const found of expected)
    expect(
      lines.filter((line) => line.startsWith(found)),
      `${found}\n${text}`,
    ).toHaveLength(1);
  expect(lines, text).toHaveLength(expected.length);
});
