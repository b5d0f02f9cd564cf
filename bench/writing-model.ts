import { createServer } from 'node:http';
import type { ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** The answer to a request, while it is written. */
export interface Writing {
  readonly word: (text: string) => void;
  readonly end: () => void;
}

/** A server with OpenAI's chat completions, whose answers are written by whoever asks for them. */
export interface WritingModel {
  readonly baseUrl: string;
  /** The next request that comes. */
  readonly asked: () => Promise<Writing>;
  readonly close: () => void;
}

export async function writingModel(): Promise<WritingModel> {
  let asked: (writing: Writing) => void = () => undefined;
  const server = createServer((request, response) => {
    request.resume();
    response.socket?.setNoDelay();
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    asked(writingTo(response));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    baseUrl: `http://127.0.0.1:${port}/v1`,
    asked: async () => await new Promise((resolve) => (asked = resolve)),
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

function writingTo(response: ServerResponse): Writing {
  const write = (delta: object, finish: string | null): void => {
    const choices = [{ index: 0, delta, finish_reason: finish }];
    const frame = { id: 'answer', object: 'chat.completion.chunk', created: 1, model: 'any', choices };
    response.write(`data: ${JSON.stringify(frame)}\n\n`);
  };
  return {
    word: (text) => write({ content: text }, null),
    end: () => {
      write({}, 'stop');
      response.end('data: [DONE]\n\n');
    },
  };
}
