import { connect } from 'node:net';
import { expect, test } from 'vitest';
import { badBodies } from './bodies.ts';
import { invalid, TOO_MUCH } from './call.ts';
import type { Call } from './call.ts';
import { refused } from './target.ts';

export function bodies(call: Call, url: () => string): void {
  test('bodies that are no JSON, of wrong types, with unknown members, unstorable text or a limit passed', async () => {
    for (const row of call.row.bodies ?? []) {
      for (const { why, body } of badBodies(row)) {
        const answer = await call.send({ body });
        expect(invalid(answer), why).not.toEqual([]);
      }
    }
  });

  test('no body at all', async () => {
    const missing = invalid(await call.send({}));
    expect(missing).not.toEqual([]);
    expect(invalid(await call.send({ headers: { 'content-type': 'application/json' } }))).toEqual(missing);
  });

  test('2 MiB in chunks, or behind a length that lies', async () => {
    const huge = JSON.stringify({ ...call.row.bodies?.[0]?.whole, pad: 'x'.repeat(TOO_MUCH) });
    const chunks = Array.from({ length: 32 }, (_, i) =>
      huge.slice((i * huge.length) / 32, ((i + 1) * huge.length) / 32),
    );
    const answer = await call.send({ body: chunks });
    const { details } = refused(answer, 413, 'limit_exceeded');
    expect(details).toEqual({ limit: 'body', limitBytes: 1_048_576 });
    const head = (length: string): string =>
      [`${call.method} ${call.path()} HTTP/1.1`, 'host: a', 'content-type: application/json', length]
        .concat(Object.entries(call.headers).map(([name, value]) => `${name}: ${value}`))
        .join('\r\n');
    const whole = JSON.stringify(call.row.bodies?.[0]?.whole);
    // Shorter than said: the rest never comes, and the client goes away.
    expect(await spoken(url(), `${head(`content-length: ${whole.length + 1}`)}\r\n\r\n${whole}`)).not.toMatch(
      /^HTTP\/1.1 [25]/,
    );
    // Longer than said: what is over is no request.
    const over = await spoken(url(), `${head('content-length: 1')}\r\n\r\n${huge}`);
    expect(over).toMatch(/^(HTTP\/1.1 400 |$)/);
    const both = await spoken(url(), `${head('content-length: 1\r\ntransfer-encoding: chunked')}\r\n\r\n${whole}`);
    expect(both).toMatch(/^HTTP\/1.1 400 /);
  });
}

export function noHttp(url: () => string): void {
  const lines = {
    'no HTTP at all': 'hello\r\n\r\n',
    'an unknown method': 'SHOUT /health HTTP/1.1\r\nhost: a\r\n\r\n',
    'an unknown version': 'GET /health HTTP/9.9\r\nhost: a\r\n\r\n',
    'a header without a name': 'GET /health HTTP/1.1\r\nhost: a\r\n: x\r\n\r\n',
    'a NUL in a header': 'GET /health HTTP/1.1\r\nhost: a\r\nx: a\u0000b\r\n\r\n',
    'headers without end': `GET /health HTTP/1.1\r\nhost: a\r\nx: ${'x'.repeat(40_000)}\r\n\r\n`,
    'a URL without end': `GET /${'x'.repeat(40_000)} HTTP/1.1\r\nhost: a\r\n\r\n`,
    'a length that is no number': 'POST /v1/admin/tenants HTTP/1.1\r\nhost: a\r\ncontent-length: x\r\n\r\n',
    'a broken chunk': 'POST /v1/admin/tenants HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n',
  };
  test.each(Object.entries(lines))('%s is answered in the form of every refusal', async (_, text) => {
    const answer = await spoken(url(), text);
    const [head = '', body = ''] = answer.split('\r\n\r\n');
    expect(head).toMatch(/^HTTP\/1.1 4\d\d /);
    expect(head).toMatch(/^x-request-id: [\x21-\x7e]+$/im);
    expect(JSON.parse(body)).toMatchObject({
      status: 'rejected',
      code: expect.any(String),
      message: expect.any(String),
    });
  });
}

/** Sends the bytes and their end, and gives all that comes back until the connection is closed. */
async function spoken(url: string, bytes: string): Promise<string> {
  const { hostname, port } = new URL(url);
  return await new Promise<string>((resolve, reject) => {
    const socket = connect({ host: hostname, port: Number(port) }, () => socket.end(bytes));
    let text = '';
    socket.setEncoding('utf8').on('data', (part: string) => (text += part));
    socket.setTimeout(20_000, () =>
      socket.destroy(new Error(`the connection stays open; it had ${text.slice(0, 200)}`)),
    );
    socket.on('error', (error: NodeJS.ErrnoException) => {
      // What the Host refuses unread it closes, and the client that still writes is told so by the kernel.
      if (error.code !== 'ECONNRESET' && error.code !== 'EPIPE') reject(error);
    });
    socket.on('close', () => resolve(text));
  });
}
