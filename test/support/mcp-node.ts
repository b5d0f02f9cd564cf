/**
 * A process with what a node calls MCP servers with: makes some calls at once of the tool `act` on the server that it is
 * given, and writes their outcomes as a line of JSON. It dies at the fault points it is given.
 */
import { z } from 'zod';
import { mcpDriver } from '#src/app/mcp-driver.ts';
import { vaultType } from '#src/commands/aggregate.ts';
import { CommandLoop } from '#src/commands/execute.ts';
import { Repository } from '#src/commands/repository.ts';
import { SealedSecrets } from '#src/drivers/secrets/sealed-secrets.ts';
import { egressPolicy } from '#src/lib/egress.ts';
import { armFaultPoints } from '#src/lib/fault-points.ts';
import { sealingKey } from '#src/lib/sealed-box.ts';
import { Stack } from '#src/lib/stack.ts';
import { openLog } from './jetstream.ts';
import { callOn, serverAt } from './mcp.ts';

const given = z
  .strictObject({
    natsUrl: z.string(),
    /** Base64. */
    hostKey: z.string(),
    tenant: z.string(),
    vaultId: z.string(),
    url: z.string(),
    calls: z.number(),
    refreshLeaseMs: z.number(),
    faultPoints: z.string(),
  })
  .parse(JSON.parse(process.argv[2] ?? '{}'));
export type McpNodeInput = typeof given;

const { tenant, vaultId, url, refreshLeaseMs } = given;
const log = await openLog(given.natsUrl, { hostKey: sealingKey(Buffer.from(given.hostKey, 'base64')) });
const stack = new Stack();
try {
  const write = {
    loop: new CommandLoop(Date.now, () => 1),
    vaults: new Repository({ type: vaultType, store: log.store, cacheBytes: 1_000_000 }),
  };
  const secrets = new SealedSecrets(log.keyring, log.secrets);
  const egress = egressPolicy('loopback');
  const driver = mcpDriver({
    egress,
    log: { secrets },
    write,
    actor: 'worker:test',
    clock: Date.now,
    stack,
    refreshLeaseMs,
  });
  armFaultPoints(given.faultPoints);
  const server = serverAt(url, { tenant, vaultIds: [vaultId] });
  const calls = Array.from({ length: given.calls }, async () => await callOn(driver, server, { tool: 'act' }));
  process.stdout.write(`${JSON.stringify((await Promise.all(calls)).map(({ kind }) => kind))}\n`);
} finally {
  await stack.unwind();
  await log[Symbol.asyncDispose]();
}
