#!/usr/bin/env node
import { auditReplay } from './app/commands/audit.ts';
import { rebuildProjections } from './app/commands/rebuild.ts';
import { auditVerify } from './app/commands/verify.ts';
import { runHost } from './app/run.ts';
import { readConfig } from './app/config.ts';
import { StartError } from './app/start-error.ts';

/** Process entry, and the only place that ends the process. */
const USAGE = `agent-host                             run the Host (configured by environment variables, see docs/operations.md)
agent-host projections rebuild [name]  build the read models anew from the log and swap them in
agent-host audit replay [name] [--until <time>]
                                       replay the log beside and report every row that differs from the live one
agent-host audit verify [--state <file>]
                                       check every commit of the log: chains, seals, shapes, its end;
                                       with a file, an interrupted run goes on where it was
agent-host help                        this text
`;

async function main(args: readonly string[]): Promise<number> {
  const [command = 'start', action, name] = args;
  if (command === 'start') return await runHost(readConfig(process.env));
  if (command === 'projections' && action === 'rebuild') return await rebuildProjections(readConfig(process.env), name);
  if (command === 'audit' && action === 'replay') return await auditReplay(readConfig(process.env), args.slice(2));
  if (command === 'audit' && action === 'verify') return await auditVerify(readConfig(process.env), args.slice(2));
  process.stdout.write(USAGE);
  return command === 'help' || command === '--help' ? 0 : 2;
}

try {
  process.exit(await main(process.argv.slice(2)));
} catch (error) {
  // What the operator can mend is one plain line; anything else is a defect and shows where it happened.
  const text =
    error instanceof StartError
      ? error.message
      : error instanceof Error
        ? (error.stack ?? error.message)
        : String(error);
  process.stderr.write(`agent-host: ${text}\n`);
  process.exit(1);
}
