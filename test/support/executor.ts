import { randomUUID } from 'node:crypto';
import type { z } from 'zod';
import * as wire from '#src/http/wire/executors.ts';
import { send, TenantClient } from './client.ts';
import type { Answer, RawRequest } from './client.ts';
import { SseReader } from './sse.ts';
import { until } from './wait-until.ts';

/**
 * The reference executor: built on the public contract alone, and what docs/executors.md describes. It hears of work on
 * the discovery stream, lists and claims actions, keeps its claims alive, and sends results. Whatever fails on the way
 * is tried again on the next node with the same ids, so that nothing is done twice.
 */

export type OfferedAction = z.output<typeof wire.claimed>['action'];

export type ActionOutcome =
  | { readonly kind: 'completed'; readonly output: unknown }
  | { readonly kind: 'failed'; readonly code: string; readonly message: string }
  | {
      readonly kind: 'ask';
      readonly interaction: {
        readonly kind: 'question' | 'approval';
        readonly prompt: string;
        readonly schema?: object;
      };
    };

export const done = (output: unknown): ActionOutcome => ({ kind: 'completed', output });

export interface ExecutorOptions {
  readonly nodes: readonly { readonly url: string }[];
  readonly tenantId: string;
  readonly token: string;
  /** Does the work of an action. */
  readonly run: (action: OfferedAction) => ActionOutcome | Promise<ActionOutcome>;
  /** Actions at the same time. */
  readonly concurrency?: number;
  /** One request for as many as there is room for, or one for each of the actions that it lists. */
  readonly claims?: 'together' | 'each';
  /** Tells the Host that it is still at it; absent: it does, every third of the lease. */
  readonly heartbeats?: boolean;
}

/** A claim that an executor got. */
export interface GotClaim {
  readonly actionId: string;
  readonly generation: number;
  readonly claimId: string;
}

const PAGE = 50;
const RETRY_MS = 50;
const IDLE_MS = 600_000;

export class Executor implements AsyncDisposable {
  /** Every claim that it got, each once. */
  readonly claims: GotClaim[] = [];
  /** Claims whose result the Host accepted. */
  readonly results: GotClaim[] = [];
  readonly #options: ExecutorOptions;
  readonly #working = new Map<string, Promise<void>>();
  #node = 0;
  #stopping = false;
  #killed = false;
  #wanted = false;
  #wake: () => void = () => undefined;
  #stream: SseReader | null = null;
  #loops: readonly Promise<void>[] = [];

  private constructor(options: ExecutorOptions) {
    this.#options = options;
  }

  /** Starts it; it is connected, and listening, when this resolves. */
  static async start(options: ExecutorOptions): Promise<Executor> {
    const executor = new Executor(options);
    executor.#stream = await executor.#connect();
    executor.#loops = [executor.#listen(), executor.#work()];
    return executor;
  }

  /** Ends what it is doing first. */
  async stop(): Promise<void> {
    this.#stopping = true;
    this.#stream?.close();
    this.#wake();
    await Promise.all(this.#loops);
    if (!this.#killed) await Promise.all(this.#working.values());
  }

  /** As if its process had died: what it holds is never heard of again. */
  kill(): void {
    this.#killed = true;
    this.#stopping = true;
    this.#stream?.close();
    this.#wake();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.kill();
    await Promise.all(this.#loops);
  }

  get #headers(): Record<string, string> {
    const { tenantId, token } = this.#options;
    return { authorization: `Bearer ${token}`, 'svc-protocol': '8', 'svc-tenant': tenantId };
  }

  get #url(): string {
    const { nodes } = this.#options;
    return nodes[this.#node % nodes.length]?.url ?? '';
  }

  /** A node that is away, stopping or overloaded is not asked again at once. */
  async #elsewhere(): Promise<void> {
    this.#node += 1;
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }

  async #connect(): Promise<SseReader> {
    return await SseReader.open(this.#url, '/v1/executors/connect', { headers: this.#headers });
  }

  /** Any signal means: look. A new stream says at once whether there is work, so none is missed in between. */
  async #listen(): Promise<void> {
    while (!this.#stopping) {
      try {
        this.#stream ??= await this.#connect();
        // Stopped while it was connecting, it has a stream that nobody has closed.
        while (!this.#stopping && (await this.#stream.next(IDLE_MS)) !== null) this.#look();
      } catch {
        // No stream to be had here, or a long silence: the next one is asked.
      }
      this.#stream?.close();
      this.#stream = null;
      if (!this.#stopping) await this.#elsewhere();
    }
  }

  #look(): void {
    this.#wanted = true;
    this.#wake();
  }

  async #work(): Promise<void> {
    while (!this.#stopping) {
      if (!this.#wanted || this.#working.size >= (this.#options.concurrency ?? 4)) {
        await new Promise<void>((resolve) => (this.#wake = resolve));
        continue;
      }
      this.#wanted = false;
      if (this.#options.claims !== 'each') {
        await this.#claimTogether();
        continue;
      }
      for (const action of await this.#list()) {
        if (this.#working.size >= (this.#options.concurrency ?? 4)) {
          this.#wanted = true;
          break;
        }
        const claim = this.#working.has(action.actionId) ? null : await this.#claim(action.actionId);
        if (claim !== null) this.#begin(claim);
      }
    }
  }

  /** Until there is no room, or nothing more. */
  async #claimTogether(): Promise<void> {
    while (!this.#stopping) {
      const limit = (this.#options.concurrency ?? 4) - this.#working.size;
      if (limit <= 0) {
        this.#wanted = true;
        return;
      }
      const body = { requestId: `claims-${randomUUID()}`, limit };
      const answer = await this.#send({ method: 'POST', path: '/v1/actions/claim', body });
      const claims = answer?.status === 200 ? wire.claimedAll.parse(answer.json).claims : [];
      for (const claim of claims) this.#begin(claim);
      if (claims.length === 0) return;
    }
  }

  #begin(claim: z.output<typeof wire.claimed>): void {
    const { action, generation, claimId } = claim;
    const { actionId } = action;
    this.claims.push({ actionId, generation, claimId });
    const working = this.#execute(claim).finally(() => {
      this.#working.delete(actionId);
      // More may wait than was on the page, and it may be offered again.
      this.#look();
    });
    this.#working.set(actionId, working);
  }

  async #list(): Promise<readonly OfferedAction[]> {
    const answer = await this.#send({ path: `/v1/actions?limit=${PAGE}` });
    return answer?.status === 200 ? wire.actionList.parse(answer.json).actions : [];
  }

  async #claim(actionId: string): Promise<z.output<typeof wire.claimed> | null> {
    const body = { requestId: `claim-${randomUUID()}` };
    const answer = await this.#send({ method: 'POST', path: `/v1/actions/${actionId}/claim`, body });
    return answer?.status === 200 ? wire.claimed.parse(answer.json) : null;
  }

  async #execute(claim: z.output<typeof wire.claimed>): Promise<void> {
    const beat = this.#options.heartbeats === false ? undefined : this.#keepAlive(claim);
    try {
      const outcome = await this.#options.run(claim.action);
      if (!this.#killed) await this.#report(claim, outcome);
    } finally {
      clearInterval(beat);
    }
  }

  #keepAlive({ action, claimId, generation, leaseExpiresAt }: z.output<typeof wire.claimed>): NodeJS.Timeout {
    const everyMs = Math.max(100, (Date.parse(leaseExpiresAt) - Date.now()) / 3);
    let isSending = false;
    return setInterval(() => {
      // While the Host is away one waits for it, not one for each third of a lease.
      if (this.#killed || isSending) return;
      isSending = true;
      const body = { requestId: `beat-${randomUUID()}`, claimId, generation };
      void this.#send({ method: 'POST', path: `/v1/actions/${action.actionId}/heartbeat`, body }).finally(() => {
        isSending = false;
      });
    }, everyMs);
  }

  async #report(claim: z.output<typeof wire.claimed>, outcome: ActionOutcome): Promise<void> {
    const { action, claimId, generation } = claim;
    const { actionId } = action;
    const path = `/v1/sessions/${encodeURIComponent(action.sessionId)}/commands`;
    // Of a result whose answer is lost the same key gets the first receipt.
    const ids = { requestId: `result-${claimId}`, idempotencyKey: `${actionId}.${generation}` };
    const body = { type: 'action_result', ...ids, actionId, claimId, generation, outcome };
    const answer = await this.#send({ method: 'POST', path, body });
    if (answer?.status === 202) this.results.push({ actionId, generation, claimId });
  }

  /** Sends until some node gives an answer that is one; null: the executor was killed meanwhile. */
  async #send(raw: RawRequest): Promise<Answer | null> {
    while (!this.#killed) {
      try {
        const answer = await send(this.#url, { ...raw, headers: this.#headers });
        if (answer.status !== 503 && answer.status !== 429 && answer.status < 500) return answer;
      } catch {
        // The node is away; whether it did what it was asked is found out by asking again.
      }
      await this.#elsewhere();
    }
    return null;
  }
}

/** Registers an executor for an agent, and starts one that reaches these nodes. */
export async function executorOf(
  tenant: TenantClient,
  options: Omit<ExecutorOptions, 'tenantId' | 'token'> & { readonly agentId?: string },
): Promise<Executor> {
  const token = await registerExecutor(tenant, options.agentId);
  // Other nodes than the one that registered it learn of a credential within a second.
  for (const node of options.nodes) {
    const there = new ExecutorClient(tenant, token).at(node).tenant;
    const isKnown = async (): Promise<boolean> => (await there.request({ path: '/v1/actions' })).status === 200;
    await until(`${node.url} knows the executor`, isKnown);
  }
  return await Executor.start({ ...options, tenantId: tenant.tenantId, token });
}

/** Registers an executor for an agent; returns its token. */
export async function registerExecutor(tenant: TenantClient, agentId = 'agent'): Promise<string> {
  const token = `executor-${randomUUID()}`;
  const body = { executors: [{ agentId, token }] };
  const answer = await tenant.request({ method: 'PUT', path: '/v1/executors', body });
  if (answer.status !== 200) throw new Error(`the executor could not be registered: ${answer.text}`);
  return token;
}

/** Calls as an executor does, one by one. */
export class ExecutorClient {
  readonly tenant: TenantClient;

  constructor(tenant: TenantClient, token: string) {
    const { url, tenantId } = tenant.credentials;
    this.tenant = new TenantClient({ url, tenantId, key: token });
  }

  at(node: { readonly url: string }): ExecutorClient {
    return new ExecutorClient(this.tenant.at(node), this.tenant.credentials.key);
  }

  async list(): Promise<readonly OfferedAction[]> {
    const answer = await this.tenant.request({ path: '/v1/actions?limit=200' });
    if (answer.status !== 200) throw new Error(`no list of actions: ${answer.text}`);
    return wire.actionList.parse(answer.json).actions;
  }

  async claim(actionId: string, requestId = `rq-${randomUUID()}`): Promise<Answer> {
    return await this.tenant.request({ method: 'POST', path: `/v1/actions/${actionId}/claim`, body: { requestId } });
  }

  /** The oldest pending ones, at most so many. */
  async claimAll(limit: number, requestId = `rq-${randomUUID()}`): Promise<(GotClaim & { action: OfferedAction })[]> {
    const answer = await this.tenant.request({ method: 'POST', path: '/v1/actions/claim', body: { requestId, limit } });
    if (answer.status !== 200) throw new Error(`no claims: ${answer.text}`);
    return wire.claimedAll
      .parse(answer.json)
      .claims.map(({ action, claimId, generation }) => ({ actionId: action.actionId, claimId, generation, action }));
  }

  async heartbeat(actionId: string, claim: { claimId: string; generation: number }): Promise<Answer> {
    const { claimId, generation } = claim;
    const body = { requestId: 'beat', claimId, generation };
    return await this.tenant.request({ method: 'POST', path: `/v1/actions/${actionId}/heartbeat`, body });
  }

  async result(
    sessionId: string,
    claim: { actionId: string; claimId: string; generation: number },
    outcome: ActionOutcome,
    idempotencyKey: string = randomUUID(),
  ): Promise<Answer> {
    const { actionId, claimId, generation } = claim;
    const members = { type: 'action_result', actionId, claimId, generation, outcome };
    return await this.tenant.command(sessionId, members, { idempotencyKey });
  }

  async connect(): Promise<SseReader> {
    const { url } = this.tenant.credentials;
    return await SseReader.open(url, '/v1/executors/connect', { headers: this.tenant.headers });
  }
}
