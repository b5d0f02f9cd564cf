/** What the digest of a subject covers, so that it differs from every other column's. */
export function subjectText(subject: string): string {
  return `subject ${subject}`;
}

/** What the digest of a session's label covers. */
export function labelText(name: string, value: string): string {
  return `label ${JSON.stringify([name, value])}`;
}

/** What the digest of an agent used as a tool covers: a delegation's id, or an agent's path. */
export function agentText(agent: string): string {
  return `agent ${agent}`;
}
