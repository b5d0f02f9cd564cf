import { pino } from 'pino';
import type { Logger } from '#src/lib/logger.ts';

export interface LogLine {
  readonly level: number;
  readonly msg: string;
  readonly err?: { readonly message: string };
}

/** A logger that writes nowhere, and what was written to it. */
export function capturedLog(): { readonly logger: Logger; readonly lines: LogLine[] } {
  const lines: LogLine[] = [];
  const write = (line: string): void => void lines.push(JSON.parse(line) as LogLine);
  return { logger: pino({ level: 'debug' }, { write }), lines };
}

export const ERROR = 50;
