const MARK = '[redacted]';

/** A text of an answer without a secret that its server repeats as it was sent. */
export function redacted(text: string, secret: string): string {
  return text.replaceAll(secret, MARK);
}

/** The same for bytes that come in parts: what may be the beginning of the secret waits for the next part. */
export async function* redactedBytes(
  parts: AsyncIterable<Uint8Array>,
  secret: string,
): AsyncGenerator<Uint8Array, void, undefined> {
  const needle = Buffer.from(secret);
  let rest = Buffer.alloc(0);
  for await (const part of parts) {
    const bytes = rest.length === 0 ? Buffer.from(part) : Buffer.concat([rest, part]);
    const { clean, from } = withoutBytes(bytes, needle);
    const end = beginningOf(needle, bytes, from);
    const out = Buffer.concat([...clean, bytes.subarray(from, end)]);
    if (out.length > 0) yield out;
    rest = Buffer.from(bytes.subarray(end));
  }
  if (rest.length > 0) yield rest;
}

/** What comes before the end of the last secret, without it. */
function withoutBytes(bytes: Buffer, secret: Buffer): { readonly clean: readonly Buffer[]; readonly from: number } {
  const clean: Buffer[] = [];
  let from = 0;
  for (let at = bytes.indexOf(secret); at >= 0; at = bytes.indexOf(secret, from)) {
    clean.push(bytes.subarray(from, at), Buffer.from(MARK));
    from = at + secret.length;
  }
  return { clean, from };
}

/** Where the bytes end with what the secret begins with; their length if they do not. */
function beginningOf(secret: Buffer, bytes: Buffer, from: number): number {
  const [first = 0] = secret;
  let at = bytes.indexOf(first, Math.max(from, bytes.length - secret.length + 1));
  while (at >= 0) {
    if (bytes.subarray(at).equals(secret.subarray(0, bytes.length - at))) return at;
    at = bytes.indexOf(first, at + 1);
  }
  return bytes.length;
}
