import { readFileSync } from 'node:fs';
import { StartError } from '../lib/start-error.ts';

type Environment = Readonly<Record<string, string | undefined>>;

/** Variables that hold a secret: each may name a file that holds it instead, as `<name>_FILE`. */
export const SECRET_VARIABLES = [
  'AGENT_HOST_ADMIN_KEY',
  'NATS_URL',
  'DATABASE_URL',
  'S3_ACCESS_KEY_ID',
  'S3_SECRET_ACCESS_KEY',
] as const;

/** The environment with the secrets that are in files, without surrounding blanks. @throws StartError */
export function withSecretFiles(environment: Environment): Environment {
  const read = SECRET_VARIABLES.flatMap((name) => {
    const path = environment[`${name}_FILE`];
    if (path === undefined || path === '') return [];
    if ((environment[name] ?? '') !== '')
      throw new StartError(`${name} and ${name}_FILE are both set; set one of them`);
    return [[name, secretIn(path, `${name}_FILE`)] as const];
  });
  return { ...environment, ...Object.fromEntries(read) };
}

function secretIn(path: string, variable: string): string {
  try {
    const text = readFileSync(path, 'utf8').trim();
    if (text !== '') return text;
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new StartError(`the file of ${variable} cannot be read (${reason}); name a file that holds the secret`, {
      cause,
    });
  }
  throw new StartError(`the file of ${variable} is empty; put the secret into it`);
}
