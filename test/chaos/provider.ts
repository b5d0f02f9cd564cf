import { delay } from '#src/lib/backoff.ts';
import { ModelServer } from '../support/model-server.ts';
import type { Reply, WireRequest } from '../support/model-server.ts';
import type { Random } from '../support/random.ts';

/** A call as it came in: its number, and the message that it is about. */
export interface ProviderCall {
  readonly id: number;
  readonly message: string;
}

const MARK = /remote message ([0-9a-f-]+), (\d+) steps/g;

/** What a client says to a session that is answered by the provider. It is found again in each call of its turn. */
export function remoteMessage(id: string, steps: number): string {
  return `remote message ${id}, ${steps} steps`;
}

/** The message in such a text; null: it is another text. Messages that nobody answered stand before it in one. */
export function messageIn(text: unknown): string | null {
  return typeof text === 'string' ? (newestIn(text)?.[1] ?? null) : null;
}

function newestIn(text: string): RegExpExecArray | undefined {
  return [...text.matchAll(MARK)].at(-1);
}

interface SpokenPart {
  readonly role: string;
  readonly content: unknown;
}

/**
 * A provider outside the installation, which nothing of the chaos touches: it counts what it gets, so that a call which
 * nobody has recorded cannot be hidden. Each answer carries the number of its call, as the count of its tokens.
 */
export class Provider implements AsyncDisposable {
  readonly calls: ProviderCall[] = [];
  readonly #server: ModelServer;
  readonly #random: Random;

  private constructor(server: ModelServer, random: Random) {
    this.#server = server;
    this.#random = random;
    server.play(async (request) => await this.#answer(request));
  }

  static async start(random: Random): Promise<Provider> {
    return new Provider(await ModelServer.start('openai-compatible'), random);
  }

  get baseUrl(): string {
    return this.#server.baseUrl;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server[Symbol.asyncDispose]();
  }

  async #answer({ body }: WireRequest): Promise<Reply> {
    // Every request holds the whole conversation: kept for minutes they would fill the memory.
    this.#server.requests.length = 0;
    const spoken = Reflect.get(Object(body), 'messages') as readonly SpokenPart[];
    const asked = spoken.findLastIndex(({ role }) => role === 'user');
    const text = textOf(spoken[asked]?.content);
    const id = this.calls.length + 1;
    this.calls.push({ id, message: messageIn(text) ?? `none: ${text.slice(0, 100)}` });
    const dice = this.#random.int(1, 20);
    await delay(this.#random.int(0, dice === 20 ? 3_000 : 400));
    if (dice === 1) return { hangUp: true };
    if (dice === 2) return { error: { status: 503, type: 'overloaded', message: 'later' } };
    const steps = Number(newestIn(text)?.[2] ?? 0);
    const taken = spoken.slice(asked).filter(({ role }) => role === 'assistant').length;
    const tokens = { input: 1, output: id };
    if (taken < steps) return { text: 'a step', toolCalls: [{ name: 'none', input: {} }], tokens };
    return { text: 'done', tokens };
  }
}

function textOf(content: unknown): string {
  if (typeof content === 'string') return content;
  const parts = Array.isArray(content) ? (content as readonly unknown[]) : [];
  return parts.map((part) => String(Reflect.get(Object(part), 'text') ?? '')).join('');
}
