import { migrate } from '../projections/read-store/migrate.ts';
import type { Config } from '../app/config.ts';
import { databaseRefusal } from '../app/read-store.ts';
import { databaseUrlOf } from './running-host.ts';

/**
 * `agent-host migrate`: brings the database up to date for the nodes of this version, as a step of its own. Nodes of
 * the previous version keep theirs. Returns the exit code.
 */
export async function migrateDatabase(config: Config): Promise<number> {
  const url = await databaseUrlOf(config);
  let applied = 0;
  const onApplied = (name: string): void => {
    applied++;
    process.stdout.write(`${name}\n`);
  };
  try {
    await migrate(url, { onApplied });
  } catch (cause) {
    throw databaseRefusal(cause);
  }
  process.stdout.write(applied === 0 ? 'The database is up to date.\n' : `${applied} applied.\n`);
  return 0;
}
