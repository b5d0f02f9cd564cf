import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { Socket } from 'node:net';

/** Another way to a server, whose connections can be cut while it runs. */
export interface Cuttable {
  /** The server's address, by this way. */
  readonly url: string;
  readonly cut: () => void;
  readonly close: () => void;
}

export async function cuttable(serverUrl: string): Promise<Cuttable> {
  const target = new URL(serverUrl);
  const open = new Set<Socket>();
  const listener = createServer({ noDelay: true }, (client) => {
    const server = connect({ host: target.hostname, port: Number(target.port), noDelay: true });
    const end = (): void => {
      for (const socket of [client, server]) {
        socket.destroy();
        open.delete(socket);
      }
    };
    for (const socket of [client, server]) {
      open.add(socket);
      socket.on('error', end).on('close', end);
    }
    client.pipe(server).pipe(client);
  });
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const address = listener.address();
  if (address === null || typeof address === 'string') throw new Error('the listener has no port');
  const url = new URL(serverUrl);
  url.port = String(address.port);
  const cut = (): void => {
    for (const socket of open) socket.destroy();
  };
  return {
    url: url.href,
    cut,
    close: () => {
      listener.close();
      cut();
    },
  };
}
