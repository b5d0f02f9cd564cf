import { afterAll, beforeAll, describe } from 'vitest';
import { artifactBytesSuite } from '../conformance/http/artifact-bytes.ts';
import { artifactLimitSuite } from '../conformance/http/artifact-limits.ts';
import { artifactSuite } from '../conformance/http/artifacts.ts';
import { messageFileSuite } from '../conformance/http/message-files.ts';
import type { HttpTarget } from '../conformance/http/target.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { TestS3 } from '../support/s3.ts';

const SUITES = [artifactSuite, artifactBytesSuite, artifactLimitSuite, messageFileSuite];

describe('artifacts in S3, two nodes', () => {
  let s3: TestS3;
  let hosts: Host[] = [];
  let target: HttpTarget;

  beforeAll(async () => {
    s3 = await TestS3.start();
    const first = await startHost({ env: s3.environment() });
    hosts = [first];
    const second = await startHost({ join: first, env: s3.environment() });
    hosts = [first, second];
    target = { adminKey: first.adminKey, nodes: [first, second] };
  });

  afterAll(async () => {
    for (const host of hosts.toReversed()) await host[Symbol.asyncDispose]();
    await s3[Symbol.asyncDispose]();
  });

  for (const suite of SUITES) suite(() => target);
});

describe('artifacts in a directory that two nodes share', () => {
  let hosts: Host[] = [];
  let target: HttpTarget;

  beforeAll(async () => {
    const first = await startHost();
    hosts = [first];
    const second = await startHost({ join: first });
    hosts = [first, second];
    target = { adminKey: first.adminKey, nodes: [first, second] };
  });

  afterAll(async () => {
    for (const host of hosts.toReversed()) await host[Symbol.asyncDispose]();
  });

  for (const suite of SUITES) suite(() => target);
});
