import { quotaRef } from '#src/commands/artifact/deps.ts';
import { quotaType } from '#src/commands/aggregate.ts';
import { Repository } from '#src/commands/repository.ts';
import { sandboxRef } from '#src/commands/sandbox/deps.ts';
import { heldBy } from '#src/domain/quota/workspaces.ts';
import { tree } from '#src/http/wire/sandboxes.ts';
import { isRunning, processIdentity } from '#src/lib/process-identity.ts';
import type { EventStore } from '#src/streams/event-store.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { allProcesses } from '../support/processes.ts';
import type { TenantClient } from '../support/client.ts';
import { until } from '../support/wait-until.ts';
import type { BoxEvent } from './box-acts.ts';
import { callKey } from './box-checks.ts';
import type { Box, BoxSessions } from './box-checks.ts';
import { boxOf } from './boxes.ts';
import { readEvents } from '../support/log-reader.ts';
import type { Pods } from './pods.ts';

/** What a run has left of its sandboxes: in the log, in their files, and of processes, volumes and objects. */

const CACHE_BYTES = 1_000_000;
/** A pod that reads its files may have to be started; the API server was away a moment ago. */
const FILES_MS = 60_000;
/** What died while it was deleting is deleted by others a little later. */
const GONE_MS = 120_000;

export interface BoxEvidence {
  readonly boxes: readonly Box[];
  readonly problems: readonly string[];
}

/** When the commit at a position of an aggregate's stream was stored, µs since 1970. */
export type StoredAt = (ref: AggregateRef, position: number) => Promise<number>;

/** @param sandboxIds of sessions, by their ids */
export async function readBoxes(
  { store, storedAt }: { readonly store: EventStore; readonly storedAt: StoredAt },
  tenant: TenantClient,
  sandboxIds: ReadonlyMap<string, string>,
): Promise<BoxEvidence> {
  const { tenantId } = tenant;
  const kinds = new Map([...sandboxIds].map(([sessionId, sandboxId]) => [sandboxId, boxOf(sessionId)]));
  const boxes: Box[] = [];
  const problems: string[] = [];
  const quota = await new Repository({ type: quotaType, store, cacheBytes: CACHE_BYTES }).load(quotaRef(tenantId));
  for (const [sandboxId, kind] of kinds) {
    if (kind === null) continue;
    const ref = sandboxRef(tenantId, sandboxId);
    const events: BoxEvent[] = [];
    for (const { position, ...event } of await readEvents(store, ref))
      events.push({ ...event, storedAt: await storedAt(ref, position) });
    boxes.push({ sandboxId, kind, events, files: await filesOf(tenant, sandboxId) });
    const { workspace, bytes } = storedBy(events);
    const held = heldBy(quota.state, workspace);
    // What a deleted one has stored is given back.
    if (held < bytes && events.at(-1)?.type !== 'sandbox.deleted')
      problems.push(`sandbox ${sandboxId} has stored ${bytes} bytes, and holds ${held}`);
  }
  return { boxes, problems };
}

/** Every file as a client reads it, and as the tree says that it is. */
async function filesOf(tenant: TenantClient, sandboxId: string): Promise<Box['files']> {
  const root = `/v1/sandboxes/${encodeURIComponent(sandboxId)}`;
  const read = async (path: string) =>
    await until(
      `GET ${path} is answered`,
      async () => {
        const answer = await tenant.request({ path, timeoutMs: FILES_MS }).catch(() => null);
        // No volume: no call has needed one.
        return answer !== null && [200, 404].includes(answer.status) && answer;
      },
      FILES_MS,
    );
  const listed = await read(`${root}/tree`);
  const files = listed.status === 404 ? [] : tree.parse(listed.json).files;
  const texts = files.map(async ({ path }) => [path, (await read(`${root}/files/${path}`)).text] as const);
  return new Map(await Promise.all(texts));
}

/** All that there is of a sandbox in which something is wrong, for people: the run's own files are gone when they look into it. */
export function historyOf(box: Box, { calls, turnEnds, acts }: BoxSessions): string {
  const events = box.events.map(({ type, data, storedAt }) => {
    const call = calls.get(callKey(data['turnId'], data['callId'])) ?? null;
    return { storedAt, type, data, call, turnEnd: turnEnds.get(String(data['turnId'])) ?? null };
  });
  const lines = [
    ...events.map((event) => JSON.stringify(event)),
    ...acts.filter(({ sandboxId }) => sandboxId === box.sandboxId).map((act) => JSON.stringify(act)),
    ...[...box.files].map((file) => JSON.stringify(file)),
  ];
  return [`${box.kind} sandbox ${box.sandboxId}, its log, what clients did, its files:`, ...lines].join('\n');
}

function storedBy(events: readonly BoxEvent[]): { readonly workspace: string; readonly bytes: number } {
  const bytes = events.reduce((sum, { data }) => sum + Number(data['storedBytes'] ?? 0), 0);
  return { workspace: String(events[0]?.data['workspace']), bytes };
}

/** Processes, as a pid alone can be another's later. */
export type Seen = ReadonlyMap<number, string>;

export function seenNow(pids: readonly number[]): Seen {
  return new Map(pids.flatMap((pid) => [[pid, processIdentity(pid) ?? '']] as const).filter(([, id]) => id !== ''));
}

/**
 * Deletes the sessions of sandboxes. Nothing may be left of these, and of Hosts that were killed no process that they had
 * started.
 */
export async function checkLeaks(
  tenant: TenantClient,
  { pods, sessions, orphans }: { readonly pods: Pods; readonly sessions: readonly string[]; readonly orphans: Seen },
): Promise<readonly string[]> {
  const problems: string[] = [];
  for (const [pid, identity] of orphans) {
    const isThere = isRunning(pid) && processIdentity(pid) === identity;
    if (isThere) problems.push(`process ${pid} has outlived its Host`);
  }
  const running = allProcesses().filter(({ line }) => pods.isOf(line));
  problems.push(
    ...running.map(({ pid, line }) => `process ${pid} runs in a pod without a call: ${line.slice(0, 200)}`),
  );
  // Forks come after their parents, and are deleted before them.
  for (const id of sessions.filter((one) => boxOf(one) !== null).toReversed()) {
    const path = `/v1/sessions/${encodeURIComponent(id)}`;
    const { status, text } = await tenant.request({ method: 'DELETE', path, timeoutMs: FILES_MS });
    if (status >= 300) problems.push(`${id} cannot be deleted: ${status} ${text}`);
  }
  const isGone = async (): Promise<boolean> => (await pods.left()).length === 0;
  await until('nothing is left of pods', isGone, GONE_MS).catch(() => undefined);
  problems.push(...(await pods.left()).map((what) => `${what} is left of a pod`));
  return problems;
}
