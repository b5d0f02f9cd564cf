import { readFile } from 'node:fs/promises';
import type { KeyObject } from 'node:crypto';
import { KEY_BYTES, sealingKey } from '../lib/sealed-box.ts';
import type { Config } from './config.ts';
import { readIfPresent } from '../lib/files.ts';
import { StartError } from '../lib/start-error.ts';

/** The Host's key, which wraps the tenants' data keys, and keys that wrapped them before. */
export interface HostKeys {
  readonly hostKey: KeyObject;
  /** They open what they wrapped, and wrap nothing. */
  readonly earlierHostKeys: readonly KeyObject[];
}

/** 32 bytes in base64, with or without its padding. */
const BASE64 = /^[A-Za-z0-9+/]{43}=?$/;

/** A key that a node made for itself would open nothing of an installation that has one. @throws StartError */
export function checkKeyIsNamed({ natsUrl, kekFile }: Config): void {
  if (natsUrl === undefined || kekFile !== undefined) return;
  throw new StartError(
    'NATS_URL is set without AGENT_HOST_KEK_FILE; name the key file that all nodes of the installation share (a new one: openssl rand -base64 32)',
  );
}

/**
 * The keys of the Host: from `AGENT_HOST_KEK_FILE`, or those that an embedded Host keeps
 * in its data directory. @throws StartError
 */
export async function hostKeys(config: Config, own: () => Promise<string>): Promise<HostKeys> {
  checkKeyIsNamed(config);
  if (config.kekFile === undefined) return keysOf(await own(), `${config.dataDir}/kek`);
  try {
    return keysOf(await readFile(config.kekFile, 'utf8'), config.kekFile);
  } catch (cause) {
    if (cause instanceof StartError) throw cause;
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new StartError(
      `the file of AGENT_HOST_KEK_FILE cannot be read (${reason}); name the key file of this installation`,
      {
        cause,
      },
    );
  }
}

/** The same for a command, which makes no key. */
export async function hostKeysOfRunning(config: Config): Promise<HostKeys> {
  return await hostKeys(config, async () => {
    const text = await readIfPresent(`${config.dataDir}/kek`);
    if (text !== undefined) return text;
    throw new StartError(
      `there is no Host key in ${config.dataDir}/kek; put the key of the installation there, or name its file by AGENT_HOST_KEK_FILE`,
    );
  });
}

/** A line for each key; while the Host's key is changed there are two. */
function keysOf(text: string, path: string): HostKeys {
  const lines = text.split('\n').map((line) => line.trim());
  const [hostKey, ...earlierHostKeys] = lines.filter((line) => line !== '').map((line) => keyOf(line, path));
  return { hostKey: hostKey ?? keyOf('', path), earlierHostKeys };
}

function keyOf(text: string, path: string): KeyObject {
  if (!BASE64.test(text)) {
    throw new StartError(
      `${path} does not hold ${KEY_BYTES} bytes as base64, or a line of it does not; put the right key back, without it nothing that is stored can be read`,
    );
  }
  return sealingKey(Buffer.from(text, 'base64'));
}
