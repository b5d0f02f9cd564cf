import { NodeTransport } from '@nats-io/transport-node/lib/node_transport.js';

const setUp = Reflect.get(NodeTransport.prototype, 'setupHandlers') as (this: NodeTransport) => void;

/**
 * Keeps the NATS client (3.4.0) from ending the process. Of a connection whose server has ended its half, which a load
 * balancer does that goes away, it writes to the socket all the same, and when the connection is closed or given up
 * takes its listeners off before Node tells of the write that failed: an `error` event that nothing hears. What it says
 * is known by then. Call it before connections are made; a second call changes nothing.
 */
export function hearErrorsToTheEnd(): void {
  NodeTransport.prototype.setupHandlers = setUpWithErrors;
}

function setUpWithErrors(this: NodeTransport): void {
  setUp.call(this);
  const { socket } = this;
  const removeAllListeners = socket.removeAllListeners.bind(socket);
  // As it was called: without an event it takes all, with an undefined one none.
  socket.removeAllListeners = (...event: [string?]) => removeAllListeners(...event).on('error', () => undefined);
}
