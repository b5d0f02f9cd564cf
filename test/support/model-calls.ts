import { afterAll, beforeAll } from 'vitest';
import type { ModelOutcome } from '#src/domain/turn/model-outcome.ts';
import { modelClient } from '#src/drivers/model/client.ts';
import type { ModelConnection, ModelDriver, ModelRequest } from '#src/drivers/model/port.ts';
import { remoteModel } from '#src/drivers/model/provider.ts';
import type { StreamPatience } from '#src/drivers/model/watchdog.ts';
import { egressPolicy } from '#src/lib/egress.ts';
import { ModelServer } from './model-server.ts';
import type { Wire } from './model-wire.ts';

export const KEY = 'sk-right-key-0123456789';
export const NEVER = new AbortController().signal;
export const TOOL = {
  name: 'search',
  description: 'Finds pages.',
  inputSchema: { type: 'object', properties: { q: { type: 'string' } }, required: ['q'] },
};
/** When every call is made. */
const NOW = '2026-01-01T00:00:00Z';

/** One model of each provider that the catalogue has a price for, but for the last. */
export const MODELS: Readonly<Record<Wire, string>> = {
  anthropic: 'claude-sonnet-4-5',
  openai: 'gpt-5-mini',
  google: 'gemini-2.5-flash',
  'openai-compatible': 'llama-4',
};

/** What the Hosts of the tests call: their servers stand on this machine. */
export const CALLABLE = egressPolicy('public,loopback');

export const PATIENT: StreamPatience = { firstTokenMs: 60_000, silenceMs: 60_000 };

export type Failed = Extract<ModelOutcome, { kind: 'failed' }>;

/** A driver, and the server that it calls; both end with the tests that it was made in. */
export class ModelCalls {
  readonly wire: Wire;
  readonly driver: ModelDriver;
  nowMs = Date.parse(NOW);
  readonly #client = modelClient({ policy: CALLABLE, silenceMs: 60_000 });
  #server: ModelServer | undefined;
  #connection: ModelConnection | undefined;

  constructor(wire: Wire) {
    this.wire = wire;
    this.driver = this.with(this.#client);
    beforeAll(async () => {
      this.#server = await ModelServer.start(wire, [KEY]);
    });
    afterAll(async () => {
      await this.#server?.[Symbol.asyncDispose]();
      await this.#client.close();
    });
  }

  /** The driver with another client. */
  with(client: ReturnType<typeof modelClient>, patience: StreamPatience = PATIENT): ModelDriver {
    const connections = async () => await Promise.resolve(this.#connection ?? this.known());
    return remoteModel(this.wire, { client, connections, clock: () => this.nowMs, patience });
  }

  get server(): ModelServer {
    if (this.#server === undefined) throw new Error('the server does not run yet');
    return this.#server;
  }

  known(apiKey = KEY): ModelConnection {
    return { baseUrl: this.server.baseUrl, key: { kind: 'known', apiKey } };
  }

  request(more: Partial<ModelRequest> = {}): ModelRequest {
    return {
      callId: 'mc_01arz3ndektsv4rrffq69g5fav',
      tenant: 'tn_1',
      conversationId: 'conversation',
      model: MODELS[this.wire],
      settings: {},
      instructions: 'Be brief.',
      messages: [{ role: 'user', text: 'ping' }],
      file: async () => await Promise.resolve(null),
      answered: 0,
      tools: [],
      toolChoice: 'auto',
      outputSchema: null,
      ...more,
    };
  }

  async call(more: Partial<ModelRequest> = {}, over?: ModelConnection): Promise<ModelOutcome> {
    this.#connection = over;
    try {
      return await this.driver.call(this.request(more), NEVER);
    } finally {
      this.#connection = undefined;
    }
  }

  /** A call that has to fail. */
  async failure(over?: ModelConnection): Promise<Failed> {
    const outcome = await this.call({}, over);
    if (outcome.kind !== 'failed') throw new Error(`it did not fail: ${JSON.stringify(outcome)}`);
    return outcome;
  }
}
