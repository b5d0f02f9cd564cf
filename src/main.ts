#!/usr/bin/env node
import { join } from 'node:path';
import { parentPort } from 'node:worker_threads';
import type { Config } from './app/config.ts';
import { stopOnSignals } from './app/stop-signal.ts';
import { entryOf, helpOf, overview, overviewOf } from './cli/catalog/help.ts';
import type { CommandName } from './cli/catalog/help.ts';
import { plainLine, plainText, safeJson, styled } from './cli/terminal.ts';
import { optimizeEarly } from './lib/early-optimization.ts';
import { hasCode } from './lib/files.ts';
import { EXIT, StartError } from './lib/start-error.ts';

/** Process entry, and the only place that ends the process. */
type Run = (args: readonly string[]) => Promise<number>;
const { env } = process;

/** By their first words. Each loads what it needs and no more: loading takes longest of all that a start does first. */
const COMMANDS: Readonly<Record<CommandName, Run>> = {
  up: async () => {
    const signals = stopOnSignals();
    const config = await readConfig();
    const { runHost } = await import('./app/run.ts');
    return await runHost(config, signals, import.meta.filename);
  },
  migrate: async (args) => {
    const { migrateDatabase } = await import('./cli/migrate.ts');
    return await migrateDatabase(await readConfig(), args);
  },
  'projections rebuild': async (args) => {
    const { rebuildProjections } = await import('./cli/rebuild.ts');
    optimizeEarly();
    return await rebuildProjections(await readConfig(), args, import.meta.filename);
  },
  'audit replay': async (args) => {
    const { auditReplay } = await import('./cli/audit.ts');
    optimizeEarly();
    return await auditReplay(await readConfig(), args, import.meta.filename);
  },
  'audit verify': async (args) => {
    const { auditVerify } = await import('./cli/verify.ts');
    return await auditVerify(await readConfig(), args);
  },
  'export session': async (args) => {
    const { exportSession } = await import('./cli/export.ts');
    return await exportSession(await readConfig(), args);
  },
  'export public-key': async (args) => {
    const { exportPublicKey } = await import('./cli/export.ts');
    return await exportPublicKey(await readConfig(), args);
  },
  'verify-export': async (args) => {
    const { verifyExport } = await import('./cli/verify-export.ts');
    return await verifyExport(args);
  },
  'keys rotate': async (args) => {
    const { rotateKeys } = await import('./cli/rotate-keys.ts');
    return await rotateKeys(await readConfig(), args);
  },
  backup: async (args) => {
    const { backup } = await import('./cli/backup.ts');
    return await backup(await readConfig(), args);
  },
  restore: async (args) => {
    const { restore } = await import('./cli/restore.ts');
    return await restore(await readConfig(), args);
  },
  reshard: async (args) => {
    const { reshard } = await import('./cli/reshard.ts');
    return await reshard(await readConfig(), args);
  },
  capacity: async (args) => {
    const { capacity } = await import('./cli/capacity.ts');
    return await capacity(await readConfig(), args);
  },
  init: async (args) => await (await import('./cli/client/init.ts')).init(await readConfig(), env, args),
  login: async (args) => await (await import('./cli/client/contexts.ts')).login(env, args),
  'context list': async (args) => await (await import('./cli/client/contexts.ts')).contextList(env, args),
  'context show': async (args) => await (await import('./cli/client/contexts.ts')).contextShow(env, args),
  'context use': async (args) => await (await import('./cli/client/contexts.ts')).contextUse(env, args),
  'context remove': async (args) => await (await import('./cli/client/contexts.ts')).contextRemove(env, args),
  console: async (args) => {
    const { showConsole } = await import('./cli/client/console.ts');
    return await showConsole(readConfig, env, args, join(import.meta.dirname, 'console'));
  },
  chat: async (args) => await (await import('./cli/client/chat.ts')).chat(env, args),
  run: async (args) => await (await import('./cli/client/run-once.ts')).runOnce(env, args),
  'sessions list': async (args) => await (await import('./cli/client/sessions.ts')).sessionsList(env, args),
  'sessions show': async (args) => await (await import('./cli/client/sessions.ts')).sessionsShow(env, args),
  'sessions tail': async (args) => await (await import('./cli/client/sessions.ts')).sessionsTail(env, args),
  'sessions fork': async (args) => await (await import('./cli/client/sessions.ts')).sessionsFork(env, args),
  'sessions export': async (args) => await (await import('./cli/client/sessions.ts')).sessionsExport(env, args),
  inbox: async (args) => await (await import('./cli/client/sessions.ts')).inbox(env, args),
  usage: async (args) => await (await import('./cli/client/usage.ts')).usage(env, args),
  'agents list': async (args) => await (await import('./cli/client/agents.ts')).agentsList(env, args),
  'agents show': async (args) => await (await import('./cli/client/agents.ts')).agentsShow(env, args),
  'agents apply': async (args) => await (await import('./cli/client/agents.ts')).agentsApply(env, args),
  'executor run': async (args) => await (await import('./cli/client/executor-run.ts')).executorRun(env, args),
  'artifacts list': async (args) => await (await import('./cli/client/artifacts.ts')).artifactsList(env, args),
  'artifacts versions': async (args) => await (await import('./cli/client/artifacts.ts')).artifactsVersions(env, args),
  'artifacts get': async (args) => await (await import('./cli/client/artifacts.ts')).artifactsGet(env, args),
  'artifacts put': async (args) => await (await import('./cli/client/artifacts.ts')).artifactsPut(env, args),
  'artifacts zip': async (args) => await (await import('./cli/client/artifacts.ts')).artifactsZip(env, args),
  'artifacts diff': async (args) => await (await import('./cli/client/artifacts.ts')).artifactsDiff(env, args),
  'vaults list': async (args) => await (await import('./cli/client/vaults.ts')).vaultsList(env, args),
  'vaults create': async (args) => await (await import('./cli/client/vaults.ts')).vaultsCreate(env, args),
  'vaults credentials': async (args) => await (await import('./cli/client/vaults.ts')).vaultsCredentials(env, args),
  'vaults add': async (args) => await (await import('./cli/client/vaults.ts')).vaultsAdd(env, args),
  'vaults sign-in': async (args) => await (await import('./cli/client/vaults.ts')).vaultsSignIn(env, args),
  'budgets list': async (args) => await (await import('./cli/client/budgets.ts')).budgetsList(env, args),
  'budgets set': async (args) => await (await import('./cli/client/budgets.ts')).budgetsSet(env, args),
  'budgets remove': async (args) => await (await import('./cli/client/budgets.ts')).budgetsRemove(env, args),
  api: async (args) => await (await import('./cli/client/api.ts')).api(await readConfig(), env, args),
  completion: async (args) => (await import('./cli/catalog/completion.ts')).completion(args),
  help: async (args) => {
    const name = args.join(' ');
    process.stdout.write(entryOf(name) === undefined ? overviewOf(name) || overview() : helpOf(name));
    return await Promise.resolve(0);
  },
};

async function readConfig(): Promise<Config> {
  const configuration = await import('./app/config.ts');
  return configuration.readConfig(process.env);
}

function misused(text: string): number {
  process.stderr.write(text);
  return EXIT.misused;
}

function runOf(name: string): Run | undefined {
  return isCommand(name) ? COMMANDS[name] : undefined;
}

function isCommand(name: string): name is CommandName {
  return Object.hasOwn(COMMANDS, name);
}

const asksHelp = (word: string | undefined): boolean => word === '--help' || word === '-h';

async function main(argv: readonly string[]): Promise<number> {
  if (parentPort !== null) {
    const { fillToldStreams } = await import('./cli/fill-thread.ts');
    return await fillToldStreams(await readConfig(), parentPort);
  }
  const [first = 'up', second, ...rest] = argv;
  if (asksHelp(first)) return await COMMANDS.help([]);
  if (first === 'start') return await main(['up', ...argv.slice(1)]);
  const two = `${first} ${second ?? ''}`;
  const [name, run, args] = isCommand(two) ? [two, COMMANDS[two], rest] : [first, runOf(first), argv.slice(1)];
  if (run === undefined) return await missing(first, second);
  const ended = args.indexOf('--');
  if ((ended < 0 ? args : args.slice(0, ended)).some(asksHelp)) return await COMMANDS.help([name]);
  return await run(args);
}

async function missing(first: string, second: string | undefined): Promise<number> {
  const group = overviewOf(first);
  if (group !== '' && asksHelp(second)) return await COMMANDS.help([first]);
  if (group !== '' && second === undefined) return misused(group);
  const what = plainLine(group === '' ? first : `${first} ${second ?? ''}`);
  const more = group === '' ? 'agent-host help lists them\n' : `these are:\n\n${group}`;
  return misused(`agent-host: there is no command ${what}; ${more}`);
}

/** What the operator can mend is one plain line; anything else is a defect and shows where it happened. */
function describe(error: unknown, args: readonly string[]): string {
  if (!(error instanceof StartError)) {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    return `agent-host: ${plainText(text)}`;
  }
  const { message, code, exitCode } = error;
  if (args.includes('--json')) {
    const said = message.startsWith(`${code}: `) ? message.slice(code.length + 2) : message;
    return safeJson({ error: { code, message: said, exitCode } });
  }
  return styled('red', `agent-host: ${plainText(message)}`, process.stderr);
}

const args = process.argv.slice(2);
// What reads the output may have enough of it: `agent-host sessions list | head -1`.
process.stdout.on('error', (error) => {
  if (!hasCode(error, 'EPIPE')) throw error;
  process.exit();
});
try {
  process.exitCode = await main(args);
} catch (error) {
  process.stderr.write(`${describe(error, args)}\n`);
  process.exitCode = error instanceof StartError ? error.exitCode : EXIT.failed;
}
// Nothing that is still open keeps the process; what was written to a pipe has to leave it first.
for (const stream of [process.stdout, process.stderr])
  await new Promise<void>((done) => stream.write('', () => done()));
process.exit();
