import { spawn } from 'node:child_process';
import { createConnection, createServer } from 'node:net';

/**
 * Runs a command in a pod with a port on its loopback that leads to the Host's proxy: `bridge <port> <socket> <program> …`.
 * It decides nothing, and a command that ends it or goes around it has gained nothing: what may be reached is decided at
 * the other end. It ends as the command ends.
 */
const [port, path, program, ...rest] = process.argv.slice(2);
if (port === undefined || path === undefined || program === undefined)
  throw new Error('a port, a socket and a command');

const server = createServer({ allowHalfOpen: true }, (from) => {
  const to = createConnection({ path, allowHalfOpen: true });
  for (const [one, other] of [
    [from, to],
    [to, from],
  ] as const) {
    one.pipe(other);
    one.on('error', () => other.destroy());
  }
});
server.on('error', (error) => {
  process.stderr.write(`there is no way to the network: ${error.message}\n`);
  process.exit(1);
});
server.listen(Number(port), '127.0.0.1', () => {
  const child = spawn(program, rest, { stdio: 'inherit' });
  child.on('error', (error) => {
    process.stderr.write(`${error.message}\n`);
    process.exit(127);
  });
  child.on('exit', (code, signal) => {
    // As a shell says it.
    process.exit(code ?? 128 + (signal === 'SIGKILL' ? 9 : 15));
  });
});
