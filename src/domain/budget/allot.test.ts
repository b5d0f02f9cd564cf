import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { toTimestamp } from '../kernel/time.ts';
import { ALLOTMENT_MS, decideDraw, heldOf, plus } from './allot.ts';
import type { Amount, Holding } from './allot.ts';
import { decideBudgetRequests } from './batch.ts';
import type { BudgetRequest } from './batch.ts';
import { decideRaiseBudget, decideSaveBudgets } from './decide.ts';
import type { Reserved } from './decide.ts';
import { budgetEventSchemas } from './events.ts';
import type { BudgetDefinition, BudgetEvent } from './events.ts';
import { evolveBudgets, initialBudgets } from './state.ts';
import type { BudgetState } from './state.ts';

const START_MS = Date.parse('2026-01-31T12:00:00.000Z');
const LIMIT = 4_000;
const SIGN_MS = ALLOTMENT_MS / 3;

interface Call {
  readonly callId: string;
  readonly agentId: string;
  readonly sessionId: string;
  readonly tokens: number;
}

/** The budgets, as the log has them. */
class Log {
  state: BudgetState = initialBudgets;
  ms = 0;

  constructor(budgets: readonly BudgetDefinition[]) {
    this.save(budgets);
  }

  get at(): string {
    return toTimestamp(START_MS + this.ms);
  }

  save(budgets: readonly BudgetDefinition[]): void {
    const decision = decideSaveBudgets(this.state, budgets, null);
    if (decision.kind === 'accepted') this.#record(decision.events);
  }

  raise(limitTokens: number): void {
    const decision = decideRaiseBudget(this.state, { budgetId: 'all', limitTokens }, this.at);
    if (decision.kind === 'accepted') this.#record(decision.events);
  }

  ask(...requests: BudgetRequest[]): readonly (Reserved | null)[] {
    const decision = decideBudgetRequests(this.state, requests, this.at);
    if (decision.kind === 'rejected') throw new Error(decision.code);
    if (decision.kind === 'accepted') this.#record(decision.events);
    return decision.reply;
  }

  /** What each budget has spent and holds, by id. */
  held(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.state.budgets.map((one) => [one.id, heldOf(this.state, one, this.at).tokens]));
  }

  #record(events: readonly BudgetEvent[]): void {
    for (const [index, event] of events.entries()) {
      const stored: unknown = JSON.parse(JSON.stringify(event.data));
      expect(budgetEventSchemas[event.type].parse(stored)).toEqual(stored);
      this.state = evolveBudgets(this.state, event, { at: this.at, position: 1, index });
    }
  }
}

/** A node: what it knows of the budgets is as old as the last time that it heard of them. */
class Node {
  readonly #log: Log;
  readonly #name: string;
  #view: BudgetState;
  /** By allotment, its calls in progress. */
  readonly drawn = new Map<string, Map<string, Call>>();
  readonly reserved = new Map<string, Call>();
  readonly #closing = new Set<string>();
  readonly #agents = new Map<string, string>();
  #wishes = 0;

  constructor(log: Log, name: string) {
    this.#log = log;
    this.#name = name;
    this.#view = log.state;
  }

  get inProgress(): number {
    const calls = [...this.drawn.values()].flatMap((one) => [...one.values()]);
    return [...calls, ...this.reserved.values()].reduce((sum, { tokens }) => sum + tokens, 0);
  }

  hear(): void {
    this.#view = this.#log.state;
    for (const id of this.drawn.keys()) {
      const phase = this.#view.allotments[id]?.phase;
      if (phase === 'recalled' || (phase !== 'open' && !this.#closing.has(id))) this.#close(id);
    }
  }

  start(call: Call): Reserved | 'drawn' {
    const open = [...this.drawn.keys()].find((id) => !this.#closing.has(id) && this.#agents.get(id) === call.agentId);
    const expected: Amount = { costUsd: 0, tokens: call.tokens };
    if (open !== undefined) {
      const nowMs = START_MS + this.#log.ms;
      const may = decideDraw(this.#view, this.#holding(open), { call, expected, nowMs });
      if (may === 'yes') {
        this.drawn.get(open)?.set(call.callId, call);
        return 'drawn';
      }
      if (may === 'over') this.#close(open);
    }
    const allotmentId = `${this.#name}${this.#wishes++}`;
    const wish = open === undefined ? { allotmentId, holder: this.#name } : undefined;
    const { tokens: _, ...rest } = call;
    const [reply] = this.#log.ask({ kind: 'reserve', call: { ...rest, before: expected, wish } });
    // Its own commits a node has heard of.
    this.#view = this.#log.state;
    if (this.#view.allotments[allotmentId] !== undefined) {
      this.drawn.set(allotmentId, new Map());
      this.#agents.set(allotmentId, call.agentId);
    }
    if (reply == null) throw new Error('a call is answered');
    if (reply.reserved) this.reserved.set(call.callId, call);
    return reply;
  }

  /** Ends one of its calls, at no more than was expected. Returns what it cost; null: none is in progress. */
  end(pick: number, share: number): number | null {
    const ids = [...this.drawn].flatMap(([id, calls]) => [...calls.values()].map((call) => ({ call, id })));
    const all = [...ids, ...[...this.reserved.values()].map((call) => ({ call, id: null }))];
    const found = all[pick % Math.max(1, all.length)];
    if (found === undefined) return null;
    const { call, id } = found;
    const { callId, agentId, sessionId, tokens } = call;
    const cost = Math.floor(tokens * share);
    const frees = { costUsd: 0, tokens: id !== null && this.#closing.has(id) ? tokens : 0 };
    const on = id === null ? undefined : { allotmentId: id, frees };
    const settle = { kind: 'settle' as const, wasReserved: true, on };
    const request = { ...settle, call: { callId, agentId, sessionId, costUsd: 0, tokens: cost } };
    // Repeated, as after an answer that was lost.
    this.#log.ask(request);
    this.#log.ask(request);
    this.#view = this.#log.state;
    if (id === null) this.reserved.delete(callId);
    else this.drawn.get(id)?.delete(callId);
    if (id !== null && this.#closing.has(id) && this.drawn.get(id)?.size === 0) this.#close(id);
    return cost;
  }

  sign(): void {
    for (const [id, { size }] of this.drawn) {
      if (this.#closing.has(id) || size === 0) this.#close(id);
      else this.#log.ask({ kind: 'keep', ...this.#holding(id), isWanted: true });
    }
  }

  #close(id: string): void {
    this.#closing.add(id);
    this.#log.ask({ kind: 'keep', ...this.#holding(id), isWanted: false });
    this.#view = this.#log.state;
    if (this.drawn.get(id)?.size === 0) this.drawn.delete(id);
  }

  #holding(allotmentId: string): Holding {
    const calls = [...(this.drawn.get(allotmentId)?.values() ?? [])];
    const held = calls.map(({ tokens }) => ({ costUsd: 0, tokens })).reduce(plus, { costUsd: 0, tokens: 0 });
    return { allotmentId, held, calls: calls.length };
  }
}

const TOTAL: BudgetDefinition = { id: 'all', scope: 'tenant', period: 'total', limitTokens: LIMIT };
const OF_AGENT: BudgetDefinition = { id: 'a', scope: 'agent', agentId: 'a', period: 'total', limitTokens: LIMIT / 2 };
const OF_SESSION: BudgetDefinition = {
  ...{ id: 's', scope: 'session', sessionId: 's1' },
  ...{ period: 'total', limitTokens: LIMIT / 4 },
};
const call = (n: number, tokens: number, of: Partial<Call> = {}): Call => {
  return { callId: `mc_${n}`, agentId: 'a', sessionId: 's0', tokens, ...of };
};

describe('an allotment', () => {
  test('is granted while there is plenty, and calls start on it without a word', () => {
    const log = new Log([TOTAL]);
    const node = new Node(log, 'n');
    expect(node.start(call(0, 10))).toMatchObject({ reserved: true });
    const granted = log.held();
    for (let n = 1; n <= 20; n++) expect(node.start(call(n, 10))).toBe('drawn');
    expect(log.held()).toEqual(granted);
    node.end(3, 0.5);
    expect(log.held()).toEqual(granted);
  });

  test('is not granted near the limit, for a session with a budget, nor while the cost of calls is not known', () => {
    const near = new Log([{ ...TOTAL, limitTokens: 300 }]);
    new Node(near, 'n').start(call(0, 10));
    const ofSession = new Log([TOTAL, OF_SESSION]);
    new Node(ofSession, 'n').start(call(0, 10, { sessionId: 's1' }));
    const unknown = new Log([TOTAL]);
    new Node(unknown, 'n').start(call(0, 0));
    for (const { state } of [near, ofSession, unknown]) expect(state.allotments).toEqual({});
  });

  const large = call(1, LIMIT - 20);
  const lacking = () => {
    const log = new Log([TOTAL]);
    const [first, second] = [new Node(log, 'f'), new Node(log, 's')];
    first.start(call(0, 10));
    expect(second.start(large)).toMatchObject({ reserved: false, awaits: true });
    return { log, first, second };
  };
  const startsNow = (second: Node): void => {
    expect(second.start(large)).toMatchObject({ reserved: true, awaits: false });
    expect(second.start(call(2, 20))).toMatchObject({ reserved: false, awaits: false, refusedBy: { id: 'all' } });
  };

  test('is given back for a call of another node that lacks it', () => {
    const { log, first, second } = lacking();
    first.hear();
    expect(log.state.allotments).toEqual({});
    startsNow(second);
  });

  test('of a node that has died comes back after its time', () => {
    const { log, second } = lacking();
    log.ms += ALLOTMENT_MS;
    expect(second.start(large)).toMatchObject({ reserved: false, awaits: true });
    log.ms += ALLOTMENT_MS;
    startsNow(second);
  });

  test('ends with the list of budgets that it was measured by', () => {
    const log = new Log([TOTAL]);
    const node = new Node(log, 'n');
    node.start(call(0, 10));
    log.save([TOTAL, OF_AGENT]);
    node.hear();
    expect(log.state.allotments).toEqual({});
    expect(log.held()).toMatchObject({ all: 10 });
  });

  test('ends when a person lowers a limit that it was measured by, and stays when they raise it', () => {
    const log = new Log([TOTAL]);
    const node = new Node(log, 'n');
    node.start(call(0, 10));
    const granted = log.state.allotments;
    log.raise(2 * LIMIT);
    expect(log.state.allotments).toEqual(granted);
    log.raise(LIMIT);
    node.hear();
    expect(log.state.allotments).toEqual({});
  });

  test('counts each run of a call that is run again after it was settled', () => {
    const log = new Log([TOTAL]);
    const [first, second] = [new Node(log, 'f'), new Node(log, 's')];
    for (const [n, node] of [first, second].entries()) {
      node.start(call(10 + n, 10));
      expect(node.start(call(1, 10))).toBe('drawn');
      expect(node.end(0, 1)).toBe(10);
    }
    expect(log.state.budgets[0]?.spentTokens).toBe(20);
    // It would count on the same allotment once only.
    expect(second.start(call(1, 10))).toMatchObject({ reserved: true });
    expect([second.end(0, 1), second.end(0, 1), second.inProgress]).toEqual([10, 10, 0]);
    expect(log.state.budgets[0]?.spentTokens).toBe(40);
  });
});

const NODES = ['x', 'y', 'z'];
const step = fc.oneof(
  {
    weight: 12,
    arbitrary: fc.record({
      ...{ does: fc.constant('start' as const), node: fc.nat(2), tokens: fc.integer({ min: 1, max: 20 }) },
      ...{ agentId: fc.constantFrom('a', 'b'), sessionId: fc.constantFrom('s0', 's0', 's0', 's1') },
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      ...{ does: fc.constant('end' as const), node: fc.nat(2), pick: fc.nat(100) },
      share: fc.double({ min: 0, max: 1, noNaN: true }),
    }),
  },
  { weight: 3, arbitrary: fc.record({ does: fc.constant('hear' as const), node: fc.nat(2) }) },
  { weight: 1, arbitrary: fc.record({ does: fc.constant('time' as const), ms: fc.integer({ min: 1, max: SIGN_MS }) }) },
  { weight: 1, arbitrary: fc.record({ does: fc.constant('die' as const), node: fc.nat(2) }) },
);

test('whatever nodes draw, hear late, return or lose: budgets are never passed, and nothing is held for ever', () => {
  let draws = 0;
  fc.assert(
    fc.property(fc.array(step, { minLength: 100, maxLength: 400, size: 'max' }), (steps) => {
      const log = new Log([TOTAL, OF_AGENT, OF_SESSION]);
      const nodes = NODES.map((name) => new Node(log, name));
      let spent = 0;
      for (const [n, one] of steps.entries()) {
        if (one.does === 'time') {
          log.ms += one.ms;
          for (const node of nodes) node.sign();
          continue;
        }
        const node = nodes[one.node];
        if (node === undefined) continue;
        if (one.does === 'start') {
          const { tokens, agentId, sessionId } = one;
          if (node.start(call(n, tokens, { agentId, sessionId })) === 'drawn') draws++;
        } else if (one.does === 'end') spent += node.end(one.pick, one.share) ?? 0;
        else if (one.does === 'hear') node.hear();
        else nodes[one.node] = new Node(log, `${n}`);
        const held = log.held();
        expect(held['all'], 'the budgets know of everything').toBeGreaterThanOrEqual(
          spent + nodes.reduce((sum, { inProgress }) => sum + inProgress, 0) - 1e-6,
        );
        for (const { id, limitTokens = 0 } of log.state.budgets) expect(held[id]).toBeLessThanOrEqual(limitTokens);
      }
      // All end, and are silent: nothing is held any more but what single calls of dead nodes do.
      for (const node of nodes) for (let left = 1; left > 0; left = node.inProgress) node.end(0, 0);
      log.ms += 3 * ALLOTMENT_MS;
      const [last] = nodes;
      last?.start(call(10_000, 1));
      const ofDead = Object.values(log.state.underWay).reduce((sum, { tokens }) => sum + tokens, 0);
      const open = Object.values(log.state.allotments).reduce((sum, { tokens }) => sum + tokens, 0);
      expect(log.held()['all']).toBe(spent + ofDead + open);
      expect(Object.values(log.state.allotments).every(({ holder }) => holder === 'x' || /^\d+$/.test(holder))).toBe(
        true,
      );
      expect(Object.keys(log.state.allotments).length).toBeLessThanOrEqual(1);
    }),
    { numRuns: 40 },
  );
  expect(draws).toBeGreaterThan(400);
});
