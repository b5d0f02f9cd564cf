import { execFile } from 'node:child_process';
import { chmod, chown, copyFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { sql } from 'slonik';
import { z } from 'zod';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { migrate } from '#src/projections/read-store/migrate.ts';
import { openReadStore } from '#src/projections/read-store/pool.ts';
import { TestPostgres } from '../support/postgres.ts';
import { until } from '../support/wait-until.ts';

/** Postgres over TLS, with the certificates that deploy/make-secrets.sh makes. */

let postgres: TestPostgres;
let secrets: string;

beforeAll(async () => {
  postgres = await TestPostgres.start();
  secrets = join(postgres.directory, 'secrets');
  await promisify(execFile)('sh', ['deploy/make-secrets.sh', secrets]);
  const [row] = (await postgres.query('show data_directory')) as { data_directory: string }[];
  const data = row?.data_directory ?? '';
  // The server takes a key from nobody but its own account.
  const { uid, gid } = await stat(data);
  for (const name of ['crt', 'key']) {
    await copyFile(join(secrets, `postgres-tls.${name}`), join(data, `server.${name}`));
    await chown(join(data, `server.${name}`), uid, gid);
    await chmod(join(data, `server.${name}`), 0o600);
  }
  await postgres.query('alter system set ssl = on');
  await postgres.query('select pg_reload_conf()');
  await until('the server offers TLS', async () => {
    const [shown] = (await postgres.query('show ssl')) as { ssl: string }[];
    return shown?.ssl === 'on';
  });
});

afterAll(async () => {
  await postgres[Symbol.asyncDispose]();
});

async function addressWith(parameters: Readonly<Record<string, string>>, host = 'localhost'): Promise<string> {
  const url = new URL(await postgres.empty());
  url.hostname = host;
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  return url.href;
}

async function reached(url: string): Promise<boolean> {
  const pool = await openReadStore({ url, maximumConnections: 1 });
  try {
    return await pool.oneFirst(sql.type(z.object({ ssl: z.boolean() }))`
      select ssl from pg_stat_ssl where pid = pg_backend_pid()`);
  } finally {
    await pool.end();
  }
}

test('an address with sslmode=verify-full and the authority is used by migrations and pages', async () => {
  const url = await addressWith({ sslmode: 'verify-full', sslrootcert: join(secrets, 'ca.crt') });
  await migrate(url);
  expect(await reached(url)).toBe(true);
});

test('a server with the certificate of somebody else, or of another name, is refused', async () => {
  const unknown = await addressWith({ sslmode: 'verify-full' });
  const another = await addressWith({ sslmode: 'verify-full', sslrootcert: join(secrets, 'ca.crt') }, '127.0.0.1');
  for (const url of [unknown, another]) {
    await expect(migrate(url)).rejects.toThrow(/certificate|altnames/i);
    await expect(reached(url)).rejects.toThrow(/connection|certificate/i);
  }
});
