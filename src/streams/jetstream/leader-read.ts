import type { JetStreamManager, MsgRequest, NextMsgRequest, StoredMsg } from '@nats-io/jetstream';

/** The first message of a subject, or of a filter, at or after a sequence, from the leader; null when there is none. */
export async function nextMessage(
  manager: JetStreamManager,
  stream: string,
  from: { readonly seq: number; readonly subject: string },
): Promise<StoredMsg | null> {
  const request: NextMsgRequest = { seq: from.seq, next_by_subj: from.subject };
  // The client's type leaves this form out for the leader's read; the server answers it (run on 2.15.1).
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  return await manager.streams.getMessage(stream, request as unknown as MsgRequest);
}
