import { delay } from '#src/lib/backoff.ts';
import { send } from '../support/client.ts';
import type { Answer, EventRecord, TenantClient } from '../support/client.ts';
import type { SessionClient } from '../support/load.ts';

const PAUSE_MS = 30;
const PAGE = 1_000;

interface Watched {
  readonly url: string;
}

/**
 * A reader that asks one node for pages all the time, and holds each answer against what its clients have been told before
 * the request left. A node may say that it cannot answer; what it does answer has to be true.
 */
export class PageWatch {
  /** What an answer said that is not so; the test shows them. */
  readonly lies: string[] = [];
  /** Answers that were held against something, by what they showed. */
  readonly compared = { list: 0, items: 0, usage: 0, ready: 0 };
  readonly #node: Watched;
  readonly #tenant: TenantClient;
  readonly #clients: readonly SessionClient[];
  readonly #stop = new AbortController();
  #loop: Promise<void> = Promise.resolve();

  constructor(node: Watched, tenant: TenantClient, clients: readonly SessionClient[]) {
    this.#node = node;
    this.#tenant = tenant.at(node);
    this.#clients = clients;
  }

  start(): void {
    this.#loop = this.#watch();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#loop;
  }

  async #watch(): Promise<void> {
    for (let round = 0; !this.#stop.signal.aborted; round++) {
      const client = this.#clients[round % this.#clients.length];
      await this.#list();
      if (client !== undefined)
        await this.#items(client, Math.floor(round / this.#clients.length) % 2 === 0 ? 'asc' : 'desc');
      await this.#usage();
      await this.#ready();
      await delay(PAUSE_MS, this.#stop.signal);
    }
  }

  /** The sessions were there before the first page was asked for. */
  async #list(): Promise<void> {
    const answer = await this.#get('/v1/sessions?limit=200');
    if (answer === null) return;
    this.compared.list++;
    const { sessions } = answer.json as { sessions: readonly { id: string }[] };
    const missing = this.#clients.filter(({ sessionId }) => sessions.every(({ id }) => id !== sessionId));
    if (missing.length > 0) this.#lied(`a list of ${sessions.length} sessions lacks ${missing.length}`);
  }

  /** The oldest page, or the newest: what lies between grows beyond a page. */
  async #items(client: SessionClient, order: 'asc' | 'desc'): Promise<void> {
    const known = client.accepted.map(({ requestId }) => requestId);
    const seen = client.tailed.map(({ eventId }) => eventId);
    const path = `/v1/sessions/${encodeURIComponent(client.sessionId)}/items?limit=${PAGE}&order=${order}`;
    const answer = await this.#get(path);
    if (answer === null) return;
    this.compared.items++;
    const { items } = answer.json as { items: readonly EventRecord[] };
    const records = order === 'asc' ? items : items.toReversed();
    const messages = records.flatMap(({ type, payload }) =>
      type === 'command.message' ? [(payload as { requestId: string }).requestId] : [],
    );
    if (!isRunOf(known, messages, order === 'asc' && items.length === PAGE))
      this.#lied(`items have ${messages.length} messages, which are not those of ${known.length} that were accepted`);
    const shown = records.map(({ eventId }) => eventId);
    if (!isRunOf(seen, shown, order === 'asc' && items.length === PAGE))
      this.#lied(`${items.length} items are not among the ${seen.length} records that the stream showed`);
  }

  async #usage(): Promise<void> {
    const turns = this.#clients.reduce((sum, client) => sum + client.turns, 0);
    const answer = await this.#get('/v1/tenant/usage');
    if (answer === null) return;
    this.compared.usage++;
    const { calls } = (answer.json as { total: { calls: number } }).total;
    if (calls < turns) this.#lied(`usage counts ${calls} calls of at least ${turns}`);
  }

  /** A node that says it is ready can answer. */
  async #ready(): Promise<void> {
    const before = await this.#isReady();
    if (!before) return;
    const answer = await this.#tenant.request({ path: '/v1/sessions?limit=1' }).catch(() => null);
    if (answer?.status === 200) this.compared.ready++;
    else if (answer !== null && (await this.#isReady())) this.#lied(`it is ready, and a list answers ${answer.status}`);
  }

  async #isReady(): Promise<boolean> {
    return (await send(this.#node.url, { path: '/ready' }).catch(() => null))?.status === 200;
  }

  /** Null: the node says that it cannot tell, or is not there. */
  async #get(path: string): Promise<Answer | null> {
    const answer = await this.#tenant.request({ path }).catch(() => null);
    if (answer?.status === 200) return answer;
    if (answer !== null && answer.status !== 503) this.#lied(`${path} answers ${answer.status}: ${answer.text}`);
    return null;
  }

  #lied(what: string): void {
    this.lies.push(`${this.#node.url}: ${what}`);
  }
}

/**
 * Whether a page shows a run of what is known, in its order and without a hole: from where it begins up to its end, where
 * there may be newer ones, or up to where the page is full.
 */
function isRunOf(known: readonly string[], page: readonly string[], isFull: boolean): boolean {
  const [first] = page;
  if (first === undefined) return known.length === 0;
  const from = known.indexOf(first);
  if (from < 0) return known.length === 0;
  const run = known.slice(from, isFull ? from + page.length : undefined);
  return page.slice(0, run.length).join() === run.join();
}
