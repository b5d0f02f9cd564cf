import { readFile } from 'node:fs/promises';
import { installed } from '../lib/installation.ts';

/** The version in package.json is the only one there is. */
export async function version(): Promise<string> {
  const text = await readFile(installed('package.json'), 'utf8');
  const parsed: unknown = JSON.parse(text);
  return typeof parsed === 'object' && parsed !== null && 'version' in parsed ? String(parsed.version) : '0';
}
