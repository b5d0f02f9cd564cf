import { jetstream } from '@nats-io/jetstream';
import type { JetStreamManager } from '@nats-io/jetstream';
import type { NatsConnection } from '@nats-io/transport-node';

const STREAM = 'EVT_0';

export interface StoredMessage {
  readonly subject: string;
  readonly msgID: string;
  readonly data: Uint8Array;
}

/** Every message of the stream, the first at index 0. The stream has no gaps. */
export async function messagesOf(manager: JetStreamManager): Promise<StoredMessage[]> {
  const { state } = await manager.streams.info(STREAM);
  const messages: StoredMessage[] = [];
  for (let seq = 1; seq <= state.last_seq; seq++) {
    const message = await manager.streams.getMessage(STREAM, { seq });
    if (message === null) throw new Error(`the stream has nothing at ${seq}`);
    messages.push({ subject: message.subject, msgID: message.header.get('Nats-Msg-Id'), data: message.data });
  }
  return messages;
}

/**
 * Makes the stream anew of other messages, as somebody could who has the server: it refuses to change what
 * is stored. Where the list has null, nothing is left at that sequence.
 */
export async function replaceMessages(
  connection: NatsConnection,
  manager: JetStreamManager,
  messages: readonly (StoredMessage | null)[],
): Promise<void> {
  const { config } = await manager.streams.info(STREAM);
  await manager.streams.delete(STREAM);
  await manager.streams.add({ ...config, deny_delete: false });
  for (const [index, message] of messages.entries()) {
    const gap = { subject: 'evt.0.gap.session.gap', msgID: `gap ${index}`, data: new Uint8Array() };
    const { subject, msgID, data } = message ?? gap;
    const { seq } = await jetstream(connection).publish(subject, data, { msgID });
    if (seq !== index + 1) throw new Error(`message ${index} was stored at ${seq}`);
    if (message === null) await manager.streams.deleteMessage(STREAM, seq);
  }
}
