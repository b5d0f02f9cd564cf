import type { Config } from '../../app/config.ts';
import { readPublished } from '../../embedded/data-dir.ts';
import { readIfPresent } from '../../lib/files.ts';
import { misuse } from '../../lib/start-error.ts';
import type { Environment } from './context-file.ts';

/**
 * The key of the Host admin for a Host: AGENT_HOST_ADMIN_KEY, or the one of the data directory if that Host runs on it. Another
 * Host never gets the file's key, whatever its document says of its operations.
 */
export async function adminKeyFor(url: string, { dataDir }: Config, env: Environment): Promise<string> {
  const given = env['AGENT_HOST_ADMIN_KEY'];
  if (given !== undefined && given !== '') return given;
  const own = await readPublished(dataDir, 'listen');
  const isOwn = own !== undefined && URL.parse(url)?.origin === URL.parse(`http://${own}`)?.origin;
  const key = isOwn ? (await readIfPresent(`${dataDir}/admin-key`))?.trim() : undefined;
  return key ?? misuse(`the key of the Host admin of ${url} is missing; set AGENT_HOST_ADMIN_KEY`);
}
