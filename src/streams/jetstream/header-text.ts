import type { Msg, MsgHdrs } from '@nats-io/transport-node';

/** What the client's messages hold besides what it declares (nats-core 3, msg.ts). */
interface Undecoded {
  readonly _rdata?: Uint8Array;
  readonly _msg?: { readonly hdr?: number };
}

/**
 * Looks up headers of a message by their names, spelled as their sender spells them. The client makes a map of lists of all
 * of them first, which costs ten times as much as finding three. A message that does not look as expected is left to it.
 */
export function headersOf(message: Msg): (name: string) => string | undefined {
  const text = undecodedText(message);
  if (text === null) return (name) => (message.headers?.has(name) === true ? message.headers.get(name) : undefined);
  return (name) => {
    const at = text.indexOf(`\r\n${name}:`);
    if (at < 0) return undefined;
    const start = at + name.length + 3;
    return text.slice(start, text.indexOf('\r\n', start)).trim();
  };
}

function undecodedText(message: Msg): string | null {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  const { _rdata: bytes, _msg: place } = message as unknown as Undecoded;
  const length = place?.hdr ?? -1;
  if (!(bytes instanceof Uint8Array) || length <= 0) return null;
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, length).toString('latin1');
  // Anything else than this line, or an end without an empty one, is no list of headers.
  return text.startsWith('NATS/1.0\r\n') && text.endsWith('\r\n\r\n') ? text : null;
}

/**
 * Headers of a message to be published, written as they go over the wire: `Name: value`, with `\r\n` between them. The
 * client's own type checks each name and value and keeps lists of them.
 */
export function headersToSend(lines: string): MsgHdrs {
  const bytes = Buffer.from(`NATS/1.0\r\n${lines}\r\n\r\n`);
  // All that the client asks of the headers of a message without tracing.
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  return { encode: () => bytes } as unknown as MsgHdrs;
}
