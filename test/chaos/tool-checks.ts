import type { LoggedEvent } from './checks.ts';

/** What has to hold of calls of MCP servers and of the grant that they are made with, as pure comparisons. */

/** A call as the server carried it out. */
export interface Execution {
  /** Its number, which its answer carries. */
  readonly id: number;
  readonly tool: string;
  /** Of the call that a model made: each has one of its own. */
  readonly mark: string;
}

/** A call of a model as the log has it. */
export interface MarkedCall {
  readonly mark: string;
  readonly tool: string;
  /** How often it was to be made: once, and once more whenever a person said so. */
  attempts: number;
  /** The number that its result carries; null: it has no result of the server. */
  answer: number | null;
}

/** The calls that a session has made of servers. */
export function callsOfServers(events: readonly LoggedEvent[]): readonly MarkedCall[] {
  const calls = new Map<string, MarkedCall>();
  const open = new Map<string, MarkedCall>();
  for (const { type, data } of events) {
    const key = JSON.stringify([data['turnId'], data['callId']]);
    if (type === 'mcp.requested') {
      const mark = String(Reflect.get(Object(data['input']), 'mark'));
      const call = calls.get(mark) ?? { mark, tool: String(data['tool']), attempts: 0, answer: null };
      call.attempts++;
      calls.set(mark, call);
      open.set(key, call);
    }
    const call = open.get(key);
    if (call === undefined) continue;
    if (type === 'mcp.repeated') call.attempts++;
    if (type === 'action.completed') call.answer = answerIn(data['outcome']);
  }
  return [...calls.values()];
}

function answerIn(outcome: unknown): number | null {
  const { kind, output } = Object(outcome) as { kind?: unknown; output?: unknown };
  return kind === 'completed' ? Number(output) : null;
}

/**
 * What the server carried out, the log has asked for; no call is carried out more often than that, unless its tool only
 * reads; and every result is one that the server gave to that call.
 */
export function checkTools(
  executions: readonly Execution[],
  calls: readonly MarkedCall[],
  repeatable: ReadonlySet<string>,
): { readonly doubled: number; readonly problems: readonly string[] } {
  const problems: string[] = [];
  let doubled = 0;
  const byMark = Map.groupBy(executions, ({ mark }) => mark);
  for (const { mark, tool, attempts, answer } of calls) {
    const done = byMark.get(mark) ?? [];
    byMark.delete(mark);
    const extra = repeatable.has(tool) ? 0 : Math.max(0, done.length - attempts);
    doubled += extra;
    if (extra > 0)
      problems.push(`call ${mark} of ${tool} was carried out ${done.length} times, and asked for ${attempts}`);
    if (answer !== null && !done.some(({ id }) => id === answer)) {
      problems.push(`call ${mark} of ${tool} has the result ${answer}, which the server gave to another, or to none`);
    }
  }
  for (const [mark, done] of byMark)
    problems.push(`call ${mark} of ${done[0]?.tool} was carried out, and no log has it`);
  return { doubled, problems };
}

/** What an authorization server says of its grant. */
export interface GrantSeen {
  /** Refresh tokens that it was sent, in order. */
  readonly used: readonly string[];
  readonly isRevoked: boolean;
}

/** The log has every use of a refresh token before it happens, and the grant is never given up: the server honours it. */
export function checkGrant({ used, isRevoked }: GrantSeen, vault: readonly LoggedEvent[]): readonly string[] {
  const problems: string[] = [];
  const begun = vault.filter(({ type }) => type === 'credential.refresh_started').length;
  if (used.length > begun) problems.push(`the server was sent ${used.length} refresh tokens, the log has ${begun}`);
  if (isRevoked) problems.push('the grant was revoked: the server was sent a refresh token that it does not honour');
  const lost = vault.filter(({ type, data }) => type === 'credential.refused' || data['needsAuth'] === true);
  if (lost.length > 0) problems.push(`the grant was given up ${lost.length} times, first by ${lost[0]?.type}`);
  return problems;
}
