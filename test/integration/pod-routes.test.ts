import { writeFileSync } from 'node:fs';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe } from 'vitest';
import { podSuite } from '../conformance/http/pods.ts';
import { KubernetesTestServer, NAMESPACE, TOKEN } from '../support/kubernetes-api.ts';
import { podWays } from '../support/pods.ts';
import { onTwoNodes } from '../support/two-nodes.ts';

const env = { AGENT_HOST_POD_SWEEP_SECONDS: '1' };

describe.runIf(podWays().length > 0)('pods, two nodes', () => {
  onTwoNodes([(target) => podSuite('bubblewrap', target)], () => env);
});

describe('pods of a cluster, two nodes', () => {
  let server: KubernetesTestServer;
  const directory = mkdtempSync(join(tmpdir(), 'agent-host-account-'));
  const [token, ca] = [join(directory, 'token'), join(directory, 'ca.crt')];
  beforeAll(async () => {
    server = await KubernetesTestServer.open();
    writeFileSync(token, `${TOKEN}\n`);
    writeFileSync(ca, server.ca);
  });
  afterAll(async () => await server[Symbol.asyncDispose]());
  onTwoNodes([(target) => podSuite('kubernetes', target)], () => ({
    ...{ ...env, AGENT_HOST_PODS: 'kubernetes', AGENT_HOST_KUBERNETES_URL: server.url },
    ...{ AGENT_HOST_KUBERNETES_NAMESPACE: NAMESPACE, AGENT_HOST_KUBERNETES_TOKEN_FILE: token },
    AGENT_HOST_KUBERNETES_CA_FILE: ca,
  }));
});
