import { artifactType, sessionType } from '../commands/aggregate.ts';
import { Repository } from '../commands/repository.ts';
import type { Snapshots } from '../streams/sealed-snapshots.ts';
import { isUnavailableError } from '../lib/unavailable.ts';
import { systemClock } from '../lib/clock.ts';
import { escapeToken } from '../streams/subjects.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import { openObjects } from '../app/artifacts.ts';
import type { Config } from '../app/config.ts';
import { writeBundle } from '../archive/export/bundle-file.ts';
import { sessionBundle } from '../archive/export/session-bundle.ts';
import { installationOf, publicKeyOf, signingKey } from '../archive/export/signing-key.ts';
import { hostKeysOfRunning } from '../app/host-key.ts';
import { Stack } from '../lib/stack.ts';
import { StartError } from '../lib/start-error.ts';
import { readArguments } from './arguments.ts';
import { operatorOptionsOf } from './catalog/operators.ts';
import { print } from './client/output.ts';
import { progressPrinter, throughput } from './progress.ts';
import { besideRunningHost } from './running-host.ts';

const CACHE_BYTES = 16_777_216;

/**
 * `agent-host export session <tenant>/<id> [--out <file>] [--with-bytes]`: writes what the log holds of a session, with
 * the histories that it reads through, into one signed file, checked without the Host (docs/audit.md).
 */
export async function exportSession(config: Config, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, operatorOptionsOf('export session'));
  const ref = sessionNamed(words);
  const out = values.out ?? `${ref.tenant}.${escapeToken(ref.id)}.jsonl.gz`;
  const key = signingKey((await hostKeysOfRunning(config)).hostKey);
  const stack = new Stack();
  try {
    return await besideRunningHost(config, 'export', async ({ log }) => {
      const objects = await openObjects(config, config.dataDir, stack);
      const folds: { snapshots: Snapshots; cacheBytes: number } = { snapshots: log.folds, cacheBytes: CACHE_BYTES };
      const parts = {
        ...{ store: log.store, codec: log.codec, objects, clock: systemClock },
        sessions: new Repository({ type: sessionType, store: log.store, ...folds }),
        artifacts: new Repository({ type: artifactType, store: log.store, ...folds }),
      };
      const begun = performance.now();
      const counts = { commits: 0, events: 0 };
      const progress = progressPrinter();
      const lines = sessionBundle(parts, {
        ref,
        installation: installationOf(publicKeyOf(key)),
        withBytes: values['with-bytes'] ?? false,
        onCommit: ({ position, newest, events }) => {
          counts.commits++;
          counts.events += events;
          progress.show({ group: ref.id, shard: log.store.shardOf(ref), position, newest });
        },
      });
      await writeBundle(out, lines, key);
      progress.done();
      return print([{ file: out, ...counts }], values.json, () => {
        return `${out}: ${counts.commits} commits (${throughput(counts, begun)})\n`;
      });
    });
  } catch (error) {
    if (isUnavailableError(error, 'objects'))
      throw new StartError(`${error.message}; nothing was written`, { cause: error });
    throw error;
  } finally {
    await stack.unwind();
  }
}

/** `agent-host export public-key`: the key that signs exports of this installation, for those who check them. */
export async function exportPublicKey(config: Config, args: readonly string[]): Promise<number> {
  const { json } = readArguments(args, operatorOptionsOf('export public-key')).values;
  const publicKey = publicKeyOf(signingKey((await hostKeysOfRunning(config)).hostKey));
  return print([{ publicKey }], json, () => `${publicKey}\n`);
}

/** A tenant's id has no slash; a session's may. */
function sessionNamed(words: readonly string[]): AggregateRef {
  const [word = ''] = words;
  const slash = word.indexOf('/');
  if (words.length !== 1 || slash < 1 || slash === word.length - 1) {
    throw new StartError('name one session as <tenant>/<id>');
  }
  return { tenant: word.slice(0, slash), kind: 'session', id: word.slice(slash + 1) };
}
