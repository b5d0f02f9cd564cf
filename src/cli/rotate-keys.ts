import { hostKeysOfRunning } from '../app/host-key.ts';
import type { Config } from '../app/config.ts';
import { armFaultPoints } from '../lib/fault-points.ts';
import { StartError } from '../lib/start-error.ts';
import { rewrapKeys } from '../streams/rewrap.ts';
import { readArguments } from './arguments.ts';
import { operatorOptionsOf } from './catalog/operators.ts';
import { print } from './client/output.ts';
import { besideRunningHost } from './running-host.ts';

/**
 * `agent-host keys rotate`: wraps the tenants' data keys with the first key of the key file, while the Host runs. Returns
 * the exit code.
 */
export async function rotateKeys(config: Config, args: readonly string[]): Promise<number> {
  const { json } = readArguments(args, operatorOptionsOf('keys rotate')).values;
  if (config.faultPoints !== undefined) armFaultPoints(config.faultPoints);
  const keys = await hostKeysOfRunning(config);
  if (keys.earlierHostKeys.length === 0) {
    throw new StartError(
      'the key file has one key; put the new one before it, on a line of its own, and start the nodes again before this command (docs/operations/host-key.md)',
    );
  }
  return await besideRunningHost(config, 'keys', async ({ log }) => {
    const done = await rewrapKeys({ ...keys, bucket: log.secretBucket });
    const { rewrapped, unopened } = done;
    print([{ rewrapped, unopened }], json, () => {
      const over = 'The earlier keys are needed no more: take them out of the file of every node, and destroy them\n';
      return `${rewrapped} data keys wrapped with the first key of the file\n${unopened.length === 0 ? over : ''}`;
    });
    if (unopened.length === 0) return 0;
    process.stderr.write(`none of the keys opens ${unopened.length} entries: ${unopened.slice(0, 20).join(' ')}\n`);
    return 1;
  });
}
