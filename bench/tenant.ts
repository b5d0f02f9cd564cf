import { randomBytes } from 'node:crypto';
import { atMost, expectStatus } from './loops.ts';
import type { Node } from './stage.ts';
import { EventReader, Lines, request } from './wire.ts';

/** A tenant with one agent, and requests written as its application would send them. */
export class Tenant {
  readonly id: string;
  readonly key: string;
  readonly #headers: string;
  /** A log that is kept has the commands of runs before, and a key of theirs would be answered as theirs. */
  readonly #run = randomBytes(4).toString('hex');
  #keys = 0;

  private constructor(tenantId: string, key: string) {
    this.id = tenantId;
    this.key = key;
    this.#headers = `Authorization: Bearer ${key}\r\nSvc-Tenant: ${tenantId}\r\nSvc-Protocol: 8\r\n`;
  }

  /** One that exists. */
  static of({ id, key }: Pick<Tenant, 'id' | 'key'>): Tenant {
    return new Tenant(id, key);
  }

  static async create(node: Node, adminKey: string): Promise<Tenant> {
    const lines = new Lines(node.address);
    try {
      const headers = `Authorization: Bearer ${adminKey}\r\nSvc-Protocol: 8\r\n`;
      const body = JSON.stringify({ name: 'bench' });
      const created = await lines.send(request('POST', '/v1/admin/tenants', { headers, body }));
      expectStatus(created, 201);
      const { tenant, applicationKey } = JSON.parse(created.body) as { tenant: { id: string }; applicationKey: string };
      const made = new Tenant(tenant.id, applicationKey);
      await made.saveAgent(node, 'bench', {});
      return made;
    } finally {
      lines.close();
    }
  }

  /** An agent on the fixture model. */
  async saveAgent(node: Node, id: string, more: object): Promise<void> {
    const manifest = { instructions: 'Be brief.', model: { provider: 'fixture', model: 'echo' }, ...more };
    const lines = new Lines(node.address);
    try {
      expectStatus(await lines.send(this.#request('PUT', `/v1/agents/${id}`, { manifest })), 200);
    } finally {
      lines.close();
    }
  }

  /** Opens sessions and waits until each can be read. */
  async openSessions(node: Node, ids: readonly string[]): Promise<void> {
    const lines = new Lines(node.address);
    try {
      await atMost(128, ids, async (id) => {
        expectStatus(await lines.send(this.#request('PUT', `/v1/sessions/${id}`, { agentId: 'bench' })), 200);
      });
    } finally {
      lines.close();
    }
  }

  /** From now on the agent's turns call a provider at this address. */
  async callModelAt(node: Node, baseUrl: string): Promise<void> {
    const model = { provider: 'openai-compatible', model: 'any' };
    const lines = new Lines(node.address);
    try {
      expectStatus(await lines.send(this.#request('PUT', '/v1/tenant/model', { ...model, baseUrl })), 200);
      const manifest = { instructions: 'Be brief.', model };
      expectStatus(await lines.send(this.#request('PUT', '/v1/agents/bench', { manifest })), 200);
    } finally {
      lines.close();
    }
  }

  /** Registers an executor of the agent; resolves to the headers of its requests. */
  async registerExecutor(node: Node, agentId: string): Promise<string> {
    const token = randomBytes(16).toString('hex');
    const lines = new Lines(node.address);
    try {
      const body = { executors: [{ agentId, token }] };
      expectStatus(await lines.send(this.#request('PUT', '/v1/executors', body)), 200);
      return `Authorization: Bearer ${token}\r\nSvc-Tenant: ${this.id}\r\nSvc-Protocol: 8\r\n`;
    } finally {
      lines.close();
    }
  }

  async saveBudgets(node: Node, budgets: readonly object[]): Promise<void> {
    const lines = new Lines(node.address);
    try {
      expectStatus(await lines.send(this.#request('PUT', '/v1/tenant/budgets', { budgets })), 200);
    } finally {
      lines.close();
    }
  }

  message(sessionId: string, content: string): string {
    return this.#command(sessionId, { type: 'message', content });
  }

  cancel(sessionId: string, reason: string): string {
    return this.#command(sessionId, { type: 'cancel', reason });
  }

  /** A page of a session's history. */
  page(sessionId: string, query: string): string {
    return request('GET', `/v1/sessions/${sessionId}/items?${query}`, { headers: this.#headers });
  }

  /** The newest sessions. */
  list(limit: number): string {
    return request('GET', `/v1/sessions?limit=${limit}`, { headers: this.#headers });
  }

  /** Follows a session from now on. `query`: more of it, with its `&`. */
  async follow(node: Node, sessionId: string, onFrame: (frame: string) => void, query = ''): Promise<EventReader> {
    const head = request('GET', `/v1/sessions/${sessionId}/events?cursor=latest${query}`, { headers: this.#headers });
    return await EventReader.open(node.address, head, onFrame);
  }

  #command(sessionId: string, command: object): string {
    const key = `${this.#run}${String(this.#keys++).padStart(9, '0')}`;
    return this.#request('POST', `/v1/sessions/${sessionId}/commands`, {
      ...command,
      requestId: key,
      idempotencyKey: key,
    });
  }

  #request(method: string, path: string, body: object): string {
    return request(method, path, { headers: this.#headers, body: JSON.stringify(body) });
  }
}

/** Names that are as long as one another, so that every request has as many bytes as the next. */
export function names(prefix: string, count: number): readonly string[] {
  return Array.from({ length: count }, (_, index) => `${prefix}-${String(index).padStart(6, '0')}`);
}

/** One name after the other, for ever. */
export function rotation(list: readonly string[]): () => string {
  let at = 0;
  return () => list[at++ % list.length] ?? '';
}

/** The bare handler's requests. */
export const bare = {
  append: (id: string, commit: string): string => request('POST', `/append/${id}`, { body: commit }),
  turn: (id: string, commits: readonly string[]): string =>
    request('POST', `/turn/${id}`, { body: commits.join('\n') }),
  follow: async (node: Node, id: string, onFrame: (frame: string) => void): Promise<EventReader> =>
    await EventReader.open(node.address, request('GET', `/events/${id}`), onFrame),
};
