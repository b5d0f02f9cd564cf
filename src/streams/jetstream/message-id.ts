/** Names the aggregate too: the server's duplicate check spans the whole stream. */
export function messageId(subject: string, commitId: string): string {
  return `${subject.slice('evt.'.length)}:${commitId}`;
}

/** The commit id in a message's id; null when it has none. */
export function commitIdOf(id: string | undefined): string | null {
  const colon = id?.lastIndexOf(':') ?? -1;
  return id === undefined || colon < 0 ? null : id.slice(colon + 1);
}
