import type { WebResponse } from '../drivers/sandbox/port.ts';

type Answer = Pick<WebResponse, 'status' | 'statusText' | 'headers' | 'body'>;

const MARK = '[redacted]';

/** An answer without a secret that its server repeats as it was sent. */
export function redacted(answer: Answer, secret: string): Answer {
  const clean = (text: string): string => text.replaceAll(secret, MARK);
  const headers = Object.entries(answer.headers).map(([name, value]) => [clean(name), clean(value)] as const);
  return {
    status: answer.status,
    statusText: clean(answer.statusText),
    headers: Object.fromEntries(headers),
    body: withoutBytes(Buffer.from(answer.body), Buffer.from(secret)),
  };
}

function withoutBytes(body: Buffer, secret: Buffer): Buffer {
  const parts: Buffer[] = [];
  let from = 0;
  for (let at = body.indexOf(secret); at >= 0; at = body.indexOf(secret, from)) {
    parts.push(body.subarray(from, at), Buffer.from(MARK));
    from = at + secret.length;
  }
  return from === 0 ? body : Buffer.concat([...parts, body.subarray(from)]);
}
