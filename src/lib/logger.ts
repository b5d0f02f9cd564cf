import { pino } from 'pino';
import type { Logger as PinoLogger } from 'pino';
import { loggedError } from './logged-error.ts';

export type Logger = PinoLogger;

/**
 * Members that are never written, wherever they occur two levels deep. Log calls pass no secrets in the first place;
 * this is the safety net.
 */
const REDACTED = ['authorization', 'apiKey', 'token', 'credential', 'key', 'password', 'headers', 'url'].flatMap(
  (name) => [name, `*.${name}`],
);

/**
 * JSON lines on standard output, or readable ones on a terminal.
 * @param options.isBeside on standard error: the output is of a command
 * @param options.process which of several processes writes; each of its lines says so
 */
export async function createLogger(options: {
  level: string;
  pretty: boolean;
  isBeside?: boolean;
  process?: number | 'supervisor' | undefined;
}): Promise<Logger> {
  const redact = { paths: REDACTED, censor: '[redacted]' };
  const serializers = { err: (error: unknown) => loggedError(error) };
  const base = options.process === undefined ? null : { process: options.process };
  const settings = { level: options.level, redact, serializers, base };
  const destination = options.isBeside === true ? 2 : 1;
  if (!options.pretty) return pino(settings, pino.destination({ dest: destination, sync: true }));
  const { default: prettyStream } = await import('pino-pretty');
  const stream = prettyStream({ colorize: true, ignore: 'pid,hostname', singleLine: true, sync: true, destination });
  return pino(settings, stream);
}
