#!/usr/bin/env node
import { StartError } from './app/start-error.ts';
import { stopOnSignals } from './app/stop-signal.ts';

/** Process entry, and the only place that ends the process. */
const USAGE = `agent-host                             run the Host (configured by environment variables, see docs/operations.md)
agent-host projections rebuild [name]  build the read models anew from the log and swap them in
agent-host audit replay [name] [--until <time>]
                                       replay the log beside and report every row that differs from the live one
agent-host audit verify                check every commit of the log: chains, seals, shapes
agent-host backup <directory>          copy log, keys and objects into a directory, while the Host runs
agent-host restore <directory>         make a new installation from a backup; no Host may run on it yet
agent-host help                        this text
`;

async function main(args: readonly string[]): Promise<number> {
  const [command = 'start', action, name] = args;
  // Before anything else is loaded, which takes longest of all that a start does before its first line.
  if (command === 'start') return await start(stopOnSignals());
  const { readConfig } = await import('./app/config.ts');
  if (command === 'projections' && action === 'rebuild') {
    const { rebuildProjections } = await import('./app/commands/rebuild.ts');
    return await rebuildProjections(readConfig(process.env), name);
  }
  if (command === 'audit' && action === 'replay') {
    const { auditReplay } = await import('./app/commands/audit.ts');
    return await auditReplay(readConfig(process.env), args.slice(2));
  }
  if (command === 'audit' && action === 'verify') {
    const { auditVerify } = await import('./app/commands/audit.ts');
    return await auditVerify(readConfig(process.env));
  }
  if (command === 'backup' && action !== undefined) {
    const { backup } = await import('./app/commands/backup.ts');
    return await backup(readConfig(process.env), action);
  }
  if (command === 'restore' && action !== undefined) {
    const { restore } = await import('./app/commands/restore.ts');
    return await restore(readConfig(process.env), action);
  }
  process.stdout.write(USAGE);
  return command === 'help' || command === '--help' ? 0 : 2;
}

async function start(stop: AbortController): Promise<number> {
  const { readConfig } = await import('./app/config.ts');
  const config = readConfig(process.env);
  const { runHost } = await import('./app/run.ts');
  return await runHost(config, stop);
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
