import { randomUUID } from 'node:crypto';
import type { TenantClient } from '../support/client.ts';
import type { Random } from '../support/random.ts';

/** Sessions whose agents work in sandboxes of either kind, and what they do there: each call leaves a mark of its own. */

export type BoxKind = 'virtual' | 'pod';

const AGENTS: Readonly<Record<BoxKind, object>> = {
  virtual: { sandboxTools: ['bash', 'write'] },
  pod: { sandbox: { kind: 'pod', spec: { memory: '128Mi', storage: '16Mi' } }, sandboxTools: ['bash', 'write'] },
};
const NOTES = 4;
const MARK = /[0-9a-f]{8}-[0-9a-f-]{27}/;

/** What the sandbox of a session is; null: it has none. */
export function boxOf(sessionId: string): BoxKind | null {
  if (sessionId.startsWith('virtual/')) return 'virtual';
  return sessionId.startsWith('pod/') ? 'pod' : null;
}

/** A sandbox that a client looks after, while turns work in it. */
export interface OwnedBox {
  readonly sandboxId: string;
  readonly kind: BoxKind;
  /** The client may delete it before its session. */
  readonly isDoomed: boolean;
}

interface BoxSessions {
  readonly ids: readonly string[];
  readonly boxes: readonly OwnedBox[];
}

/** Of each kind a sandbox in which one session works, one that two sessions share, and one that is deleted under its session. */
export async function openBoxSessions(tenant: TenantClient): Promise<BoxSessions> {
  const ids: string[] = [];
  const boxes: OwnedBox[] = [];
  for (const kind of ['virtual', 'pod'] as const) {
    await tenant.saveAgent(kind, { ...AGENTS[kind] });
    const alone = await tenant.openSession(`${kind}/alone`, { agentId: kind });
    const first = await tenant.openSession(`${kind}/first`, { agentId: kind });
    const shared = { agentId: kind, sandbox: { id: first.sandboxId } };
    const second = await tenant.openSession(`${kind}/second`, shared);
    const doomed = await tenant.openSession(`${kind}/doomed`, { agentId: kind });
    ids.push(alone.id, first.id, second.id, doomed.id);
    for (const { id, sandboxId } of [alone, first, doomed])
      boxes.push({ sandboxId: sandboxId ?? '', kind, isDoomed: id === doomed.id });
  }
  return { ids, boxes };
}

/** A step of a model: one or two calls. */
export function boxStep(random: Random): object {
  const calls = Array.from({ length: random.int(1, 2) }, () => {
    return random.int(1, 4) === 1 ? writeCall(random) : bashCall(random);
  });
  return { text: 'run', toolCalls: calls };
}

/**
 * Two lines of a log, one at the beginning of the command and one at its end, and then what the log is. A command that
 * is ended in between leaves the first at most, and another that ran meanwhile would have left its own between the two.
 */
function bashCall(random: Random): object {
  const mark = randomUUID();
  const seconds = random.int(0, 3) / 10;
  const command = [
    'set -e',
    `echo "b ${mark}" >> log`,
    ...(seconds === 0 ? [] : [`sleep ${seconds}`]),
    `echo "e ${mark}" >> log`,
    'lines=$(wc -l < log)',
    'set -- $(sha256sum < log)',
    `echo "${mark} $lines $1"`,
  ];
  return { name: 'bash', input: { command: command.join('\n'), timeoutSeconds: 30 } };
}

function writeCall(random: Random): object {
  return { name: 'write', input: { path: `notes/${random.int(1, NOTES)}`, content: randomUUID() } };
}

/** The mark in the input of a call. */
export function markIn(input: unknown): string {
  const { command, content } = Object(input) as { command?: unknown; content?: unknown };
  return MARK.exec(String(command ?? content))?.[0] ?? 'none';
}
