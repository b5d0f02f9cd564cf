import { describe, expect, test } from 'vitest';
import { readConfig } from '#src/app/config.ts';
import { openSandboxes } from '#src/app/sandboxes.ts';
import { commandSuite, fileToolSuite } from '../conformance/sandbox.ts';
import { capturedLog } from '../support/logger.ts';
import { confinements, TestSandbox, virtualSandboxes } from '../support/sandboxes.ts';

describe.each(confinements())('commands in virtual sandboxes, bubblewrap %s', (bubblewrap) => {
  commandSuite(() => virtualSandboxes({ bubblewrap }));
});

describe('file tools of virtual sandboxes', () => {
  fileToolSuite(() => virtualSandboxes());
});

test('the sources as they are run commands too, with the settings of the node', async () => {
  const environment = { AGENT_HOST_SANDBOX_CHILDREN: '1', AGENT_HOST_SANDBOX_BUBBLEWRAP: 'off' };
  const { sandboxes: config } = readConfig(environment);
  expect(config).toMatchObject({ children: 1, childrenPerTenant: 1, memoryMiB: 256, limits: { files: 10_000 } });
  const driver = openSandboxes({ config, path: undefined, logger: capturedLog().logger });
  try {
    const answer = await new TestSandbox(driver).bash('echo here');
    expect(answer).toMatchObject({ result: { stdout: 'here\n' } });
    expect(driver.status()).toMatchObject({ available: true, confinement: 'none' });
  } finally {
    await driver.stop();
  }
});
