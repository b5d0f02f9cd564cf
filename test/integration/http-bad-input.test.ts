import { jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import type { NatsConnection } from '@nats-io/transport-node';
import { afterAll, beforeAll, describe } from 'vitest';
import { badInputSuite } from '../conformance/http/bad-input.ts';
import type { BadInputTarget } from '../conformance/http/call.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { onMemoryHost } from '../support/memory-target.ts';

/** Hundreds of refused credentials of one address: what guessers wait for would be most of the time. */
const ENV = { AGENT_HOST_FAILED_AUTH_PER_SECOND: '100000' };

describe('bad input at the durable Host', () => {
  let host: Host;
  let nats: NatsConnection;
  let target: BadInputTarget;

  beforeAll(async () => {
    host = await startHost({ env: ENV });
    const { host: servers, username, password } = new URL(await host.file('nats-url'));
    nats = await connect({ servers, user: username, pass: password });
    const manager = await jetstreamManager(nats);
    const logMessages = async (): Promise<number> => {
      let messages = 0;
      for await (const { config, state } of manager.streams.list('evt.>'))
        if (config.name.startsWith('EVT_')) messages += state.messages;
      return messages;
    };
    target = { adminKey: host.adminKey, nodes: [host, host], logMessages };
  });

  afterAll(async () => {
    await nats.close();
    await host[Symbol.asyncDispose]();
  });

  badInputSuite(() => target);
});

describe('bad input at the Host in memory', () => {
  onMemoryHost([badInputSuite], ENV);
});
