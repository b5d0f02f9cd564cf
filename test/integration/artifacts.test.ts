import { afterAll, beforeAll, describe } from 'vitest';
import { artifactBytesSuite } from '../conformance/http/artifact-bytes.ts';
import { artifactLimitSuite } from '../conformance/http/artifact-limits.ts';
import { artifactSuite } from '../conformance/http/artifacts.ts';
import { messageFileSuite } from '../conformance/http/message-files.ts';
import { onMemoryHost } from '../support/memory-target.ts';
import { TestS3 } from '../support/s3.ts';
import { onTwoNodes } from '../support/two-nodes.ts';

const SUITES = [artifactSuite, artifactBytesSuite, artifactLimitSuite, messageFileSuite];

describe('artifacts in S3, two nodes', () => {
  let s3: TestS3;

  beforeAll(async () => {
    s3 = await TestS3.start();
  });

  afterAll(async () => {
    await s3[Symbol.asyncDispose]();
  });

  onTwoNodes(SUITES, () => s3.environment());
});

describe('artifacts in a directory that two nodes share', () => {
  onTwoNodes(SUITES);
});

describe('artifacts of the Host in memory', () => {
  onMemoryHost(SUITES);
});
