import { createHash, randomBytes } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { access, link, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { hasCode, syncDirectory } from '../../lib/files.ts';
import { StartError } from '../../lib/start-error.ts';
import { signedText } from './format.ts';
import type { Line } from './format.ts';
import { publicKeyOf, signatureOf } from './signing-key.ts';

/**
 * Writes a bundle and signs it; one whose name ends with `.gz` is compressed. The file appears whole or not at all, and
 * never replaces another. Holds a few lines in memory, however many there are.
 * @throws StartError when there is a file of that name
 */
export async function writeBundle(path: string, lines: AsyncIterable<Line>, key: KeyObject): Promise<void> {
  const temporary = `${path}.${process.pid}-${randomBytes(4).toString('hex')}.tmp`;
  try {
    // A long export would be wasted.
    if (await isThere(path)) throw exists(path);
    const source = Readable.from(signed(lines, key));
    const sink = createWriteStream(temporary, { flags: 'wx', mode: 0o600, flush: true });
    if (path.endsWith('.gz')) await pipeline(source, createGzip(), sink);
    else await pipeline(source, sink);
    // A rename would replace a file that was made meanwhile.
    await link(temporary, path);
    await syncDirectory(dirname(path));
  } catch (error) {
    if (hasCode(error, 'EEXIST')) throw exists(path);
    if (hasCode(error, 'ENOENT'))
      throw new StartError(`${path} cannot be written: there is no such folder`, { cause: error });
    throw error;
  } finally {
    await rm(temporary, { force: true });
  }
}

function exists(path: string): StartError {
  return new StartError(`${path} exists; name another file, or remove it`);
}

async function isThere(path: string): Promise<boolean> {
  return await access(path).then(
    () => true,
    () => false,
  );
}

async function* signed(lines: AsyncIterable<Line>, key: KeyObject): AsyncGenerator<string> {
  const digest = createHash('sha256');
  for await (const line of lines) {
    const text = `${JSON.stringify(line)}\n`;
    digest.update(text);
    yield text;
  }
  const signature = signatureOf(key, signedText(digest.digest('hex')));
  const last: Line = { kind: 'signature', algorithm: 'Ed25519', publicKey: publicKeyOf(key), signature };
  yield `${JSON.stringify(last)}\n`;
}
