import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { readConfig } from './config.ts';

const directory = mkdtempSync(join(tmpdir(), 'agent-host-secrets-'));
afterAll(() => rmSync(directory, { recursive: true }));

function file(name: string, text: string): string {
  const path = join(directory, name);
  writeFileSync(path, text);
  return path;
}

test('a secret may be in a file, which is named beside or instead of nothing else', () => {
  const path = file('key', 'a key of sixteen characters\n');
  expect(readConfig({ AGENT_HOST_ADMIN_KEY_FILE: path }).adminKey).toBe('a key of sixteen characters');
  expect(readConfig({ DATABASE_URL_FILE: path }).databaseUrl).toBe('a key of sixteen characters');
  const both = { AGENT_HOST_ADMIN_KEY_FILE: path, AGENT_HOST_ADMIN_KEY: 'another key of many characters' };
  expect(() => readConfig(both)).toThrow('AGENT_HOST_ADMIN_KEY and AGENT_HOST_ADMIN_KEY_FILE are both set');
});

test('a file that is empty or not there is refused by the name of its variable', () => {
  expect(() => readConfig({ DATABASE_URL_FILE: file('empty', '\n') })).toThrow(
    'the file of DATABASE_URL_FILE is empty',
  );
  expect(() => readConfig({ NATS_URL_FILE: join(directory, 'none') })).toThrow(
    'the file of NATS_URL_FILE cannot be read',
  );
  // What is read is checked as if it had been set.
  expect(() => readConfig({ AGENT_HOST_ADMIN_KEY_FILE: file('short', 'short') })).toThrow('16 characters or more');
});
