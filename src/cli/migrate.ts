import { migrate } from '../projections/read-store/migrate.ts';
import type { Config } from '../app/config.ts';
import { databaseRefusal } from '../app/read-store.ts';
import { readArguments } from './arguments.ts';
import { operatorOptionsOf } from './catalog/operators.ts';
import { print } from './client/output.ts';
import { databaseUrlOf } from './running-host.ts';

/**
 * `agent-host migrate`: brings the database up to date for the nodes of this version, as a step of its own. Nodes of
 * the previous version keep theirs. Returns the exit code.
 */
export async function migrateDatabase(config: Config, args: readonly string[]): Promise<number> {
  const { json } = readArguments(args, operatorOptionsOf('migrate')).values;
  const url = await databaseUrlOf(config);
  const applied: string[] = [];
  const onApplied = (name: string): void => {
    applied.push(name);
    if (json !== true) process.stdout.write(`${name}\n`);
  };
  try {
    await migrate(url, { onApplied });
  } catch (cause) {
    throw databaseRefusal(cause);
  }
  return print([{ applied }], json, () =>
    applied.length === 0 ? 'The database is up to date.\n' : `${applied.length} applied.\n`,
  );
}
