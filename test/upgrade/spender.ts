import { budgetsRef } from '#src/commands/tenant/budgets.ts';
import { expect } from 'vitest';
import type { TenantClient } from '../support/client.ts';
import { openLogOf, readEvents } from '../support/log-reader.ts';
import type { PlacedEvent } from '../support/log-reader.ts';
import { until } from '../support/wait-until.ts';

interface Spending {
  readonly url: string;
}

const SESSIONS = ['spent/0', 'spent/1'];
const TURNS = 2;
/** Plenty: nodes that know allotments would have them from the first call on. */
const LIMIT_TOKENS = 1_000_000;
const TURN_MS = 120_000;
const usage = { inputTokens: 7, outputTokens: 3 };
const TURN = [
  { text: 'once', toolCalls: [{ name: 'none', input: {} }], usage },
  { text: 'twice', usage },
];

/** A tenant with a budget. The node that a message is sent to runs its turn, and asks the budget for each of its calls. */
export class Spender {
  readonly #tenant: TenantClient;
  readonly #environment: Readonly<Record<string, string>>;
  #turns = 0;

  private constructor(tenant: TenantClient, environment: Readonly<Record<string, string>>) {
    this.#tenant = tenant;
    this.#environment = environment;
  }

  static async start(tenant: TenantClient, environment: Readonly<Record<string, string>>): Promise<Spender> {
    await tenant.saveAgent();
    for (const id of SESSIONS) await tenant.openSession(id);
    const budgets = [{ id: 'all', scope: 'tenant', period: 'total', limitTokens: LIMIT_TOKENS }];
    const saved = await tenant.request({ method: 'PUT', path: '/v1/tenant/budgets', body: { budgets } });
    expect(saved.status, saved.text).toBe(200);
    return new Spender(tenant, environment);
  }

  /** Turns on each of the nodes, all of which then say that what was spent is what the calls took. */
  async spend(nodes: readonly Spending[]): Promise<void> {
    const before = (await this.#log()).length;
    await Promise.all(
      SESSIONS.map(async (id) => {
        for (const node of nodes) for (let turn = 0; turn < TURNS; turn++) await this.#turn(node, id);
      }),
    );
    const tokens = this.#turns * TURN.length * (usage.inputTokens + usage.outputTokens);
    for (const node of nodes) {
      const { budgets } = await this.#get<{ budgets: { spentTokens: number }[] }>(node, '/v1/tenant/budgets');
      const { total } = await this.#get<{ total: { calls: number; usage: { totalTokens: number } } }>(
        node,
        '/v1/tenant/usage',
      );
      const { calls, usage: used } = total;
      expect({ spent: budgets.map(({ spentTokens }) => spentTokens), calls, used: used.totalTokens }, node.url).toEqual(
        {
          ...{ spent: [tokens], calls: this.#turns * TURN.length, used: tokens },
        },
      );
    }
    const settled = (await this.#log()).slice(before).filter(({ type }) => type === 'spend.settled');
    expect(new Set(settled.map(({ actor }) => actor)).size, 'every node has asked for its calls').toBe(nodes.length);
  }

  /** What no node of the last release can fold. */
  async allotments(): Promise<readonly string[]> {
    return (await this.#log()).map(({ type }) => type).filter((type) => type.startsWith('allotment'));
  }

  async #turn(node: Spending, id: string): Promise<void> {
    const { turnId } = await this.#tenant.at(node).play(id, TURN);
    const outcome = await until(
      `the turn ${String(turnId)} on ${node.url} has ended`,
      async () => {
        const { lastTurn } = await this.#tenant.at(node).session(id);
        return lastTurn?.turnId === turnId && lastTurn.outcome;
      },
      TURN_MS,
    );
    expect(outcome).toBe('completed');
    this.#turns++;
  }

  async #get<T>(node: Spending, path: string): Promise<T> {
    const answer = await this.#tenant.at(node).request({ path });
    expect(answer.status, answer.text).toBe(200);
    return answer.json as T;
  }

  async #log(): Promise<readonly PlacedEvent[]> {
    const log = await openLogOf(this.#environment, 1);
    try {
      return await readEvents(log.store, budgetsRef(this.#tenant.tenantId));
    } finally {
      await log.close();
    }
  }
}
