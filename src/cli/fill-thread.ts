import { on } from 'node:events';
import type { MessagePort } from 'node:worker_threads';
import type { Config } from '../app/config.ts';
import { PROJECTIONS } from '../app/projectors.ts';
import { StartError } from '../lib/start-error.ts';
import { fill, withoutWaiting } from '../projections/fill.ts';
import type { FillProgress, StreamToFill } from '../projections/fill.ts';
import { forLongWork } from '../projections/read-store/long-work.ts';
import type { GroupName } from '../projections/schemas.ts';
import { besideRunningHost } from './running-host.ts';

/** A stream that a thread of the command is to fill. */
export interface StreamOfThread extends Pick<StreamToFill, 'schema' | 'shard' | 'end' | 'batchMax'> {
  readonly group: GroupName;
}

/** What a thread tells the command, which runs the same program. */
export type FromThread =
  | { readonly kind: 'ready' }
  | { readonly kind: 'progress'; readonly progress: FillProgress }
  | { readonly kind: 'filled' }
  /** An error loses its class on its way: whether a person at the terminal can act on its message is said beside it. */
  | { readonly kind: 'failed'; readonly error: unknown; readonly isForPeople: boolean };

/** A thread of a rebuild or an audit: fills the streams that it is told, one after the other, until the command ends it. */
export async function fillToldStreams(config: Config, port: MessagePort): Promise<number> {
  const tell = (message: FromThread): void => port.postMessage(message);
  // Before it connects: what is told meanwhile waits.
  const told = on(port, 'message');
  try {
    await besideRunningHost(config, 'fill', async ({ log, pool, logger }) => {
      await forLongWork(pool, async (connection) => {
        await withoutWaiting(connection, async () => {
          tell({ kind: 'ready' });
          const onProgress = (progress: FillProgress): void => tell({ kind: 'progress', progress });
          const { source, seals } = log;
          for await (const [message] of told) {
            // Both ends are of one program.
            // oxlint-disable-next-line typescript/no-unsafe-type-assertion
            const { group: name, ...stream } = message as StreamOfThread;
            const group = PROJECTIONS.find((one) => one.name === name);
            if (group === undefined) throw new Error(`there is no projection ${name}`);
            await fill(connection, { source, seals, group, logger, onProgress, ...stream });
            tell({ kind: 'filled' });
          }
        });
      });
    });
  } catch (error) {
    tell({ kind: 'failed', error, isForPeople: error instanceof StartError });
  }
  return 0;
}
