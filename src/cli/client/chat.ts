import { createInterface } from 'node:readline';
import type { Interface } from 'node:readline';
import type { EventRecord, Session } from '../../client/client.ts';
import { readArguments } from '../arguments.ts';
import { clientOf, plainly, readContext } from './context.ts';
import type { Environment } from './context.ts';
import { endsTurn, lineOf, short } from './show.ts';

const OPTIONS = { attach: { type: 'string' } } as const;
type Asked = Extract<EventRecord, { type: 'turn.paused' }>['payload']['interactions'][number];

/**
 * `agent-host chat [agent] [--attach session]`: a conversation at the terminal. Each line is a message; what the agent
 * says and does is shown live, and what it asks a person is asked here. Ctrl-C interrupts a turn, and ends the chat
 * between turns; so does the end of the input. Returns the exit code.
 */
export async function chat(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, OPTIONS);
  const context = await readContext(env);
  return await plainly(context.url, async () => {
    const client = clientOf(context);
    const session =
      values.attach === undefined
        ? await client.sessions.open({ agentId: words[0] ?? context.agent })
        : client.session(values.attach);
    await session.get();
    process.stdout.write(`Session ${session.id}. Ctrl-C interrupts a turn, Ctrl-D ends the chat.\n`);
    return await new Chat(session, values.attach === undefined ? 'latest' : 'start').run();
  });
}

class Chat {
  readonly #session: Session;
  readonly #from: string;
  readonly #lines: Interface;
  readonly #ended = new AbortController();
  /** Lines typed but not read yet; null once there are no more. */
  #typed: (string | null)[] = [];
  #wake: () => void = () => undefined;
  /** Turns that this chat started and has not seen end. */
  readonly #open = new Set<string>();
  /** A message is on its way: its turn may already run. */
  #sending = false;
  readonly #seenEnds = new Set<string>();
  #asked: readonly Asked[] = [];
  readonly #isTerminal = process.stdin.isTTY;

  constructor(session: Session, from: string) {
    this.#session = session;
    this.#from = from;
    this.#lines = createInterface({ input: process.stdin, output: process.stdout, terminal: this.#isTerminal });
    this.#lines.setPrompt(this.#isTerminal ? '> ' : '');
    this.#lines.on('line', (line) => this.#type(line));
    this.#lines.on('close', () => this.#type(null));
    this.#lines.on('SIGINT', () => this.#interrupt());
  }

  async run(): Promise<number> {
    const { cursor } = await this.#session.get();
    const from = this.#from === 'latest' ? (cursor ?? 'start') : this.#from;
    const following = this.#follow(from).catch((error: unknown) => {
      if (!this.#ended.signal.aborted) throw error;
    });
    const talking = this.#talk().finally(() => this.#ended.abort(new Error('the chat is over')));
    try {
      await Promise.all([following, talking]);
    } finally {
      this.#ended.abort(new Error('the chat is over'));
      this.#lines.close();
    }
    return 0;
  }

  async #follow(from: string): Promise<void> {
    for await (const event of this.#session.events({ from, signal: this.#ended.signal })) {
      const line = lineOf(event);
      if (line !== null) this.#print(line);
      if (event.type === 'turn.paused') this.#asked = event.payload.interactions;
      if (endsTurn(event) && event.turnId !== null) {
        this.#asked = [];
        this.#seenEnds.add(event.turnId);
        this.#open.delete(event.turnId);
      }
      this.#wake();
    }
  }

  /** A line answers a question, else it is a message; one after the other, so that a file can be a conversation. */
  async #talk(): Promise<void> {
    for (;;) {
      await this.#until(() => this.#asked.length > 0 || this.#open.size === 0);
      const [asked, ...later] = this.#asked;
      if (asked !== undefined) this.#print(questionOf(asked));
      if (this.#isTerminal) this.#lines.prompt();
      const line = await this.#line();
      if (line === null) return;
      if (asked !== undefined) {
        this.#asked = later;
        await this.#answer(asked, line.trim());
      } else if (line.trim() !== '') {
        await this.#send(line);
      }
    }
  }

  async #send(line: string): Promise<void> {
    this.#sending = true;
    const { turnId } = await this.#session.send(line, { whenBusy: 'queue' }).finally(() => {
      this.#sending = false;
    });
    if (turnId !== null && !this.#seenEnds.has(turnId)) this.#open.add(turnId);
  }

  async #answer({ interactionId, kind, schema }: Asked, line: string): Promise<void> {
    if (kind === 'approval') await this.#session.approve(interactionId, /^y(es)?$/i.test(line));
    else await this.#session.respond(interactionId, schema === undefined ? line : jsonOr(line));
  }

  /** The next line, or null at the end of the input. */
  async #line(): Promise<string | null> {
    await this.#until(() => this.#typed.length > 0);
    return this.#typed.shift() ?? null;
  }

  async #until(there: () => boolean): Promise<void> {
    while (!there() && !this.#ended.signal.aborted) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        this.#ended.signal.addEventListener('abort', () => resolve(), { once: true });
      });
    }
  }

  #type(line: string | null): void {
    this.#typed.push(line);
    this.#wake();
  }

  #interrupt(): void {
    if (this.#open.size === 0 && !this.#sending) {
      this.#type(null);
      return;
    }
    // The record says that the turn is over.
    this.#session.cancel({ reason: 'interrupted' }).catch((error: unknown) => this.#print(String(error)));
  }

  #print(text: string): void {
    if (this.#isTerminal) process.stdout.write('\r\u001B[K');
    process.stdout.write(`${text}\n`);
  }
}

function questionOf({ kind, toolName = 'it', input, prompt, budgetId }: Asked): string {
  if (kind === 'approval') return `Allow ${toolName} ${short(input)}? [y/n]`;
  return `${prompt ?? 'A question'}${budgetId === undefined ? '' : ' (JSON)'}`;
}

/** What a schema asks for is JSON; other text is taken as it is. */
function jsonOr(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return line;
  }
}
