#!/usr/bin/env node
import type { Config } from './app/config.ts';
import { StartError } from './lib/start-error.ts';
import { stopOnSignals } from './app/stop-signal.ts';

/** Process entry, and the only place that ends the process. */
const USAGE = `agent-host                             run the Host (configured by environment variables, see docs/operations.md)
agent-host migrate                     bring the database up to date for this version, as a step before its nodes start
agent-host projections rebuild [name]  rebuild the read models from the log and swap them in
agent-host audit replay [name] [--until <time|cursor>]
                                       replay the log beside and report every row that differs from the live one
agent-host audit verify [--state <file>]
                                       check every commit of the log: chains, seals, shapes, its end;
                                       with a file, an interrupted run continues where it was
agent-host keys rotate                 wrap the tenants' data keys with the first key of the key file, while the Host runs
agent-host backup <directory>          copy log, keys and objects into a directory, while the Host runs
agent-host restore <directory>         make a new installation from a backup; no Host may run on it yet
agent-host export session <tenant>/<id> [--out <file>] [--with-bytes]
                                       write a session's history into a signed file
agent-host export public-key           print the key that exports are signed with
agent-host verify-export <file> [--key <public key>]
                                       check such a file, with nothing else at hand
agent-host capacity [url …] [--seconds <n>] [--json]
                                       what a running installation uses, by its metrics, and what gives way first

For those who call a Host, with the context that init writes (AGENT_HOST_CONTEXT names another file):

agent-host up                          run the Host as npm start does: everything on this machine
agent-host init [--url <url>]          make a tenant with a key and an agent, and remember them
agent-host chat [agent] [--attach <session>]
                                       talk to an agent at the terminal; answer what it asks
agent-host run <text> [--agent <id>] [--session <id>] [--json]
                                       one message and the output of its turn; exit code 1 when it does not complete
agent-host sessions list|show <id> [--json]
agent-host inbox [--json]              what people have to answer
agent-host usage [--json]              what model calls used in the last 30 days
agent-host agents apply <id> <file>    save the manifest of a JSON file
agent-host api [operationId] [name=value …] [--body <json>|@<file>|-]
                                       any operation of the API; without one, all that there are

agent-host help                        this text
`;

/** By their first words. Each loads what it needs and no more: loading takes longest of all that a start does first. */
const COMMANDS: Readonly<Record<string, (args: readonly string[]) => Promise<number>>> = {
  start: async () => {
    const stop = stopOnSignals();
    const config = await readConfig();
    const { runHost } = await import('./app/run.ts');
    return await runHost(config, stop);
  },
  migrate: async () => {
    const { migrateDatabase } = await import('./cli/migrate.ts');
    return await migrateDatabase(await readConfig());
  },
  'projections rebuild': async ([name]) => {
    const { rebuildProjections } = await import('./cli/rebuild.ts');
    return await rebuildProjections(await readConfig(), name);
  },
  'audit replay': async (args) => {
    const { auditReplay } = await import('./cli/audit.ts');
    return await auditReplay(await readConfig(), args);
  },
  'audit verify': async (args) => {
    const { auditVerify } = await import('./cli/verify.ts');
    return await auditVerify(await readConfig(), args);
  },
  'export session': async (args) => {
    const { exportSession } = await import('./cli/export.ts');
    return await exportSession(await readConfig(), args);
  },
  'export public-key': async () => {
    const { exportPublicKey } = await import('./cli/export.ts');
    return await exportPublicKey(await readConfig());
  },
  'verify-export': async (args) => {
    const { verifyExport } = await import('./cli/verify-export.ts');
    return await verifyExport(args);
  },
  'keys rotate': async () => {
    const { rotateKeys } = await import('./cli/rotate-keys.ts');
    return await rotateKeys(await readConfig());
  },
  backup: async ([directory]) => {
    if (directory === undefined) return misused();
    const { backup } = await import('./cli/backup.ts');
    return await backup(await readConfig(), directory);
  },
  restore: async ([directory]) => {
    if (directory === undefined) return misused();
    const { restore } = await import('./cli/restore.ts');
    return await restore(await readConfig(), directory);
  },
  capacity: async (args) => {
    const { capacity } = await import('./cli/capacity.ts');
    return await capacity(await readConfig(), args);
  },
  up: async () => await main(['start']),
  init: async (args) => {
    const { init } = await import('./cli/client/init.ts');
    return await init(await readConfig(), process.env, args);
  },
  chat: async (args) => {
    const { chat } = await import('./cli/client/chat.ts');
    return await chat(process.env, args);
  },
  run: async (args) => {
    const { runOnce } = await import('./cli/client/run-once.ts');
    return await runOnce(process.env, args);
  },
  api: async (args) => {
    const { api } = await import('./cli/client/api.ts');
    return await api(await readConfig(), process.env, args);
  },
  ...Object.fromEntries(
    (['sessions list', 'sessions show', 'inbox', 'usage', 'agents apply'] as const).map((name) => [
      name,
      async (args: readonly string[]) => {
        const lists = await import('./cli/client/lists.ts');
        return await lists.LISTS[name](process.env, args);
      },
    ]),
  ),
  help: async () => {
    process.stdout.write(USAGE);
    return await Promise.resolve(0);
  },
};

async function readConfig(): Promise<Config> {
  const configuration = await import('./app/config.ts');
  return configuration.readConfig(process.env);
}

function misused(): number {
  process.stderr.write(USAGE);
  return 2;
}

async function main([first = 'start', second = '', ...rest]: readonly string[]): Promise<number> {
  if (first === '--help') return await main(['help']);
  const [ofTwo, ofOne] = [`${first} ${second}`, first].map((name) =>
    Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined,
  );
  if (ofTwo !== undefined) return await ofTwo(rest);
  return ofOne === undefined ? misused() : await ofOne(second === '' ? [] : [second, ...rest]);
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
