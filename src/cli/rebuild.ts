import type { ProjectionGroup } from '../projections/projection.ts';
import { rebuild } from '../projections/rebuild.ts';
import type { Config } from '../app/config.ts';
import { PROJECTIONS } from '../app/projectors.ts';
import { StartError } from '../lib/start-error.ts';
import { readArguments } from './arguments.ts';
import { operatorOptionsOf } from './catalog/operators.ts';
import { print } from './client/output.ts';
import { progressPrinter } from './progress.ts';
import { withFillThreads } from './fill-threads.ts';
import { besideRunningHost } from './running-host.ts';

/**
 * `agent-host projections rebuild [name]`: builds read models beside the live ones and swaps them, while the Host runs.
 * Returns the exit code. @param program the file that each of several threads runs
 */
export async function rebuildProjections(config: Config, args: readonly string[], program: string): Promise<number> {
  const { values, words } = readArguments(args, operatorOptionsOf('projections rebuild'));
  const groups = groupsNamed(words[0]);
  return await besideRunningHost(config, 'rebuild', async ({ log, pool, logger }) => {
    const { source, seals } = log;
    await withFillThreads(program, source.shards, async (threads) => {
      for (const group of groups) {
        const begun = performance.now();
        const progress = progressPrinter();
        await rebuild({ pool, source, seals, group, logger, threads, onProgress: progress.show });
        progress.done();
        const seconds = secondsSince(begun);
        print([{ projection: group.name, seconds }], values.json, () => `${group.name}: rebuilt in ${seconds} s\n`);
      }
    });
    return 0;
  });
}

/** With one decimal. */
export function secondsSince(begunMs: number): number {
  return Math.round((performance.now() - begunMs) / 100) / 10;
}

/** The projections that a command names; all when it names none. @throws StartError */
export function groupsNamed(name: string | undefined): readonly ProjectionGroup[] {
  const groups = PROJECTIONS.filter((group) => name === undefined || group.name === name);
  if (groups.length > 0) return groups;
  const names = PROJECTIONS.map((group) => group.name).join(', ');
  throw new StartError(`there is no projection ${name ?? ''}; name one of ${names}, or none for all`);
}
