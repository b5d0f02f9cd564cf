export interface Frame {
  readonly id: string | null;
  readonly event: string;
  readonly data: string;
}

/**
 * The frames of a body of server-sent events. Half a frame at the end of a cut body is dropped.
 * @param silence called when the body is awaited, and when something has come, comments too
 */
export async function* frames(
  body: ReadableStream<Uint8Array>,
  silence: { readonly begins: () => void; readonly ends: () => void },
): AsyncGenerator<Frame, void, undefined> {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let rest = '';
  try {
    for (;;) {
      silence.begins();
      const { done, value } = await reader.read();
      silence.ends();
      if (done) return;
      rest += decoder.decode(value, { stream: true }).replaceAll('\r', '');
      const blocks = rest.split('\n\n');
      rest = blocks.pop() ?? '';
      yield* blocks.map(frameOf).filter((frame) => frame !== null);
    }
  } finally {
    // A reader that stops releases the connection.
    await reader.cancel().catch(() => undefined);
  }
}

function frameOf(block: string): Frame | null {
  let id: string | null = null;
  let event = 'message';
  const data: string[] = [];
  let isFrame = false;
  for (const line of block.split('\n')) {
    const at = line.indexOf(':');
    if (at === 0 || line === '') continue;
    const [name, value] = at < 0 ? [line, ''] : [line.slice(0, at), line.slice(at + 1).replace(/^ /, '')];
    isFrame = true;
    if (name === 'id') id = value;
    else if (name === 'event') event = value;
    else if (name === 'data') data.push(value);
  }
  return isFrame ? { id, event, data: data.join('\n') } : null;
}
