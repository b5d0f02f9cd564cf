import { randomBytes } from 'node:crypto';
import { glob, readFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';

/** A text that stands nowhere else. */
export const planted = (name: string): string => `planted-${name}-${randomBytes(12).toString('hex')}`;

/** Which of the secrets are in a text, as they are, or encoded in one of the usual ways. */
export function holds(text: string, secrets: ReadonlyMap<string, string>): string[] {
  const forms = (secret: string): string[] => {
    const base64 = Buffer.from(secret).toString('base64').replace(/=+$/, '');
    // The last character depends on what comes after it.
    return [secret, encodeURIComponent(secret), base64.slice(0, -1), Buffer.from(secret).toString('hex')];
  };
  return [...secrets].filter(([, secret]) => forms(secret).some((form) => text.includes(form))).map(([name]) => name);
}

/** The command lines of all processes that work in the directories: anyone on the machine can read them. */
export async function argumentsOf(directories: readonly string[]): Promise<string[]> {
  const lines: string[] = [];
  for await (const name of glob('[0-9]*/cmdline', { cwd: '/proc' })) {
    const line = await readFile(join('/proc', name), 'latin1').catch(() => '');
    if (directories.some((directory) => line.includes(directory))) lines.push(line);
  }
  return lines;
}

/** Sends the bytes as they are, and gives all that comes back until the connection is closed. */
export async function spoken(url: string, bytes: string): Promise<string> {
  const { hostname, port } = new URL(url);
  return await new Promise<string>((resolve, reject) => {
    const socket = connect({ host: hostname, port: Number(port) }, () => socket.write(bytes));
    let text = '';
    socket.setEncoding('utf8').on('data', (part: string) => (text += part));
    socket.on('error', reject);
    socket.on('close', () => resolve(text));
  });
}
