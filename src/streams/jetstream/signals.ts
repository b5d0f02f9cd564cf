import type { NatsConnection } from '@nats-io/transport-node';
import type { Signals } from '../signals.ts';

const PREFIX = 'signal.';

/** Signals on core NATS. */
export function natsSignals(connection: NatsConnection): Signals {
  return {
    send: (topic, text) => {
      if (!connection.isClosed()) connection.publish(`${PREFIX}${topic}`, text);
    },
    listen: (topic, onSignal) => {
      const subscription = connection.subscribe(`${PREFIX}${topic}`, {
        callback: (error, message) => {
          if (error === null) onSignal(message.subject.slice(PREFIX.length), message.string());
        },
      });
      return () => subscription.unsubscribe();
    },
  };
}
