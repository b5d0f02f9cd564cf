import { createInterface } from 'node:readline';
import type { Interface } from 'node:readline';
import { Problem, WrittenText } from '../../client/client.ts';
import type { EventRecord, Preview, Session } from '../../client/client.ts';
import { readArguments } from '../arguments.ts';
import { optionsOf } from '../catalog/callers.ts';
import { plainText, safeJson } from '../terminal.ts';
import { withClient } from './context.ts';
import type { Environment } from './context-file.ts';
import { callsOf, endsTurn, lineOf, short } from './show.ts';

/** A person who approves sees what is approved; more than this is said to be there. */
const ASKED_CHARS_MAX = 4_000;
/** How a question that is over refuses an answer. */
const OVER = 'session_not_waiting';
const ANSWERED = '[that has been answered already, or its turn is over]';
const NOT_SENT = '[your line was an answer to it, and was not sent]';
type Asked = Extract<EventRecord, { type: 'turn.paused' }>['payload']['interactions'][number];

/**
 * `agent-host chat [agent] [--attach session]`: a conversation at the terminal. Each line is a message; what the agent
 * says and does is shown live, and what it asks a person is asked here. Ctrl-C interrupts a turn, and ends the chat
 * between turns; so does the end of the input. Returns the exit code.
 */
export async function chat(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, optionsOf('chat'));
  const { attach, json: asJson = false } = values;
  return await withClient(env, values.context, async (client, context) => {
    const session =
      attach === undefined
        ? await client.sessions.open({ agentId: words[0] ?? context.agent })
        : client.session(attach);
    await session.get();
    if (!asJson) process.stdout.write(`Session ${session.id}. Ctrl-C interrupts a turn, Ctrl-D ends the chat.\n`);
    return await new Chat(session, { from: attach === undefined ? 'latest' : 'start', asJson }).run();
  });
}

class Chat {
  readonly #session: Session;
  readonly #from: string;
  readonly #asJson: boolean;
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
  readonly #answered = new Set<string>();
  /** A person looks on: lines are asked for, and what is shown may be written over. JSON is for a program. */
  readonly #isTerminal: boolean;
  /** The next line was begun as an answer to what somebody else has answered. */
  #isStale = false;
  /** The cursor stands behind a part of an answer. */
  #isWriting = false;

  constructor(session: Session, { from, asJson }: { readonly from: string; readonly asJson: boolean }) {
    this.#session = session;
    this.#from = from;
    this.#asJson = asJson;
    this.#isTerminal = process.stdin.isTTY && process.stdout.isTTY && !asJson;
    this.#lines = createInterface({ input: process.stdin, output: process.stdout, terminal: this.#isTerminal });
    this.#lines.setPrompt(this.#isTerminal ? '> ' : '');
    this.#lines.on('line', (line) => this.#type(line));
    this.#lines.on('close', () => this.#type(null));
    this.#lines.on('SIGINT', this.#interrupt);
  }

  async run(): Promise<number> {
    const { cursor } = await this.#session.get();
    const from = this.#from === 'latest' ? (cursor ?? 'start') : this.#from;
    const following = this.#follow(from).catch((error: unknown) => {
      if (!this.#ended.signal.aborted) throw error;
    });
    // Keys of a terminal that is not read line by line here are signals.
    if (process.stdin.isTTY && !this.#isTerminal) process.on('SIGINT', this.#interrupt);
    const talking = this.#talk().finally(() => this.#ended.abort(new Error('the chat is over')));
    try {
      await Promise.all([following, talking]);
    } finally {
      this.#ended.abort(new Error('the chat is over'));
      process.off('SIGINT', this.#interrupt);
      this.#lines.close();
    }
    return 0;
  }

  async #follow(from: string): Promise<void> {
    const written = new WrittenText();
    const onPreview = this.#asJson ? undefined : (preview: Preview): void => this.#write(written.preview(preview));
    for await (const event of this.#session.events({ from, onPreview, signal: this.#ended.signal })) {
      if (this.#asJson) this.#print(safeJson(event));
      else this.#show(event, written.record(event));
      if (event.type === 'command.approve' || event.type === 'command.respond')
        this.#isAnswered(event.payload.interactionId);
      if (event.type === 'turn.paused')
        this.#asked = event.payload.interactions.filter(({ interactionId }) => !this.#answered.has(interactionId));
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
      if (asked !== undefined && !this.#asJson) this.#print(plainText(questionOf(asked)));
      if (this.#isTerminal) this.#lines.prompt();
      const line = await this.#lineFor(asked);
      if (line === null) return;
      if (asked === undefined) {
        if (line !== 'gone' && line.text.trim() !== '') await this.#send(line.text);
      } else if (line === 'gone' || this.#isGone(asked)) {
        this.#tell(ANSWERED);
      } else {
        this.#asked = later;
        this.#answered.add(asked.interactionId);
        await this.#answer(asked, line.text.trim());
      }
    }
  }

  /** Here, or by somebody else: what is answered is not asked again, though a pause that was on its way lists it. */
  #isAnswered(interactionId: string): void {
    this.#answered.add(interactionId);
    this.#asked = this.#asked.filter((asked) => asked.interactionId !== interactionId);
  }

  async #send(line: string): Promise<void> {
    this.#sending = true;
    const { turnId } = await this.#session.send(line, { whenBusy: 'queue' }).finally(() => {
      this.#sending = false;
    });
    if (turnId !== null && !this.#seenEnds.has(turnId)) this.#open.add(turnId);
  }

  async #answer({ interactionId, kind, schema }: Asked, line: string): Promise<void> {
    try {
      if (kind === 'approval') await this.#session.approve(interactionId, /^y(es)?$/i.test(line));
      else await this.#session.respond(interactionId, schema === undefined ? line : jsonOr(line));
    } catch (error) {
      if (!(error instanceof Problem && error.code === OVER)) throw error;
      this.#tell(ANSWERED);
    }
  }

  /** Somebody else has answered it, or its turn is over. */
  #isGone({ interactionId }: Asked): boolean {
    return !this.#asked.some((one) => one.interactionId === interactionId);
  }

  /** The next line, or null at the end of the input; `gone`: what it would answer needs no answer any more. */
  async #lineFor(asked: Asked | undefined): Promise<{ readonly text: string } | 'gone' | null> {
    await this.#until(() => this.#typed.length > 0 || (asked !== undefined && this.#isGone(asked)));
    if (this.#typed.length === 0 && !this.#ended.signal.aborted) {
      this.#isStale = this.#isTerminal && this.#lines.line !== '';
      return 'gone';
    }
    const text = this.#typed.shift() ?? null;
    return text === null ? null : { text };
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
    if (this.#isStale && line !== null) this.#tell(NOT_SENT);
    else this.#typed.push(line);
    this.#isStale = false;
    this.#wake();
  }

  readonly #interrupt = (): void => {
    if (this.#open.size === 0 && !this.#sending) {
      this.#type(null);
      return;
    }
    // The record says that the turn is over.
    this.#session.cancel({ reason: 'interrupted' }).catch((error: unknown) => this.#tell(plainText(String(error))));
  };

  /** Says something to the person; a program reads records alone. */
  #tell(text: string): void {
    if (this.#asJson) process.stderr.write(`${text}\n`);
    else this.#print(text);
  }

  /** A record, of whose text a part may have been written already. */
  #show(event: EventRecord, rest: string): void {
    const line =
      event.type === 'message.assistant' && event.payload.agent === undefined ? callsOf(event) : lineOf(event);
    this.#write(rest);
    if (line !== null) this.#print(line);
    else if (event.type === 'message.assistant') this.#endLine();
  }

  /** A piece of a line that is not complete yet. */
  #write(piece: string): void {
    if (piece === '') return;
    if (this.#isTerminal && !this.#isWriting) process.stdout.write('\r\u001B[K');
    this.#isWriting = true;
    process.stdout.write(plainText(piece));
  }

  #endLine(): void {
    if (this.#isWriting) process.stdout.write('\n');
    this.#isWriting = false;
  }

  #print(text: string): void {
    this.#endLine();
    if (this.#isTerminal) process.stdout.write('\r\u001B[K');
    process.stdout.write(`${text}\n`);
  }
}

function questionOf({ kind, toolName = 'it', input, prompt, budgetId }: Asked): string {
  if (kind === 'approval') return `Allow ${toolName} ${short(input, ASKED_CHARS_MAX)}? [y/n]`;
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
