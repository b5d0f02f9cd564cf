import { readFile } from 'node:fs/promises';
import type { KeyObject } from 'node:crypto';
import { KEY_BYTES, sealingKey } from '../lib/sealed-box.ts';
import type { Config } from './config.ts';
import { readIfPresent } from '../lib/files.ts';
import { StartError } from '../lib/start-error.ts';

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
 * The Host's key, which wraps the tenants' data keys: from `AGENT_HOST_KEK_FILE`, or the one that an embedded Host keeps
 * in its data directory. @throws StartError
 */
export async function hostKey(config: Config, own: () => Promise<string>): Promise<KeyObject> {
  checkKeyIsNamed(config);
  if (config.kekFile === undefined) return keyOf(await own(), `${config.dataDir}/kek`);
  try {
    return keyOf(await readFile(config.kekFile, 'utf8'), config.kekFile);
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
export async function hostKeyOfRunning(config: Config): Promise<KeyObject> {
  return await hostKey(config, async () => {
    const text = await readIfPresent(`${config.dataDir}/kek`);
    if (text !== undefined) return text;
    throw new StartError(
      `there is no Host key in ${config.dataDir}/kek; put the key of the installation there, or name its file by AGENT_HOST_KEK_FILE`,
    );
  });
}

function keyOf(text: string, path: string): KeyObject {
  const base64 = text.trim();
  if (!BASE64.test(base64)) {
    throw new StartError(
      `${path} does not hold ${KEY_BYTES} bytes as base64; put the right key back, without it nothing that is stored can be read`,
    );
  }
  return sealingKey(Buffer.from(base64, 'base64'));
}
