import { once } from 'node:events';
import { connect } from 'node:net';

/** Sends lines as they are to a port of this machine, and reads until the other side closes the connection. */
export async function sendLines(port: number, lines: readonly string[]): Promise<string> {
  const socket = connect(port, '127.0.0.1').setEncoding('utf8');
  let heard = '';
  socket.on('data', (text: string) => (heard += text));
  socket.write(lines.join('\r\n'));
  // Who resets the connection has closed it, too.
  socket.on('error', () => undefined);
  await once(socket, 'close');
  return heard;
}
