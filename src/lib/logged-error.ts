/** An error as a log line shows it. */
export interface LoggedError {
  readonly type: string;
  readonly message: string;
  readonly stack: string;
  readonly code?: string | number;
  readonly cause?: LoggedError;
  readonly errors?: readonly LoggedError[];
}

const CAUSES_MAX = 8;
const TEXT_CHARS_MAX = 4_000;

/**
 * What may be logged of an error: an allow-list. Errors of libraries carry whole rows, statements with their values,
 * requests and answers as members of their own (Postgres: `detail`, "Failing row contains …").
 */
export function loggedError(error: unknown, depth = 0): LoggedError {
  if (!(error instanceof Error)) return { type: typeof error, message: 'not an error object', stack: '' };
  const message = safeMessage(error);
  const { code, cause, errors } = error as { code?: unknown; cause?: unknown; errors?: unknown };
  const deeper = depth < CAUSES_MAX;
  return {
    type: error.name,
    message,
    stack: framesOf(error),
    ...(typeof code === 'string' || typeof code === 'number' ? { code } : {}),
    ...(deeper && cause instanceof Error ? { cause: loggedError(cause, depth + 1) } : {}),
    ...(deeper && Array.isArray(errors)
      ? { errors: errors.slice(0, CAUSES_MAX).map((one) => loggedError(one, depth + 1)) }
      : {}),
  };
}

/**
 * Some messages quote what they could not use: the JSON parser a part of the text, and Postgres the value of a column
 * (class 22, "invalid input syntax for type …").
 */
function safeMessage(error: Error): string {
  const quotes = error instanceof SyntaxError || isDataException(error);
  const message = quotes ? error.message.replaceAll(/"[^"]*"|'[^']*'|\.\.\..*$/gs, '…') : error.message;
  return message.slice(0, TEXT_CHARS_MAX);
}

function isDataException(error: Error): boolean {
  return 'severity' in error && 'code' in error && typeof error.code === 'string' && error.code.startsWith('22');
}

/** The stack without its first lines, which repeat the message as it was. */
function framesOf({ stack = '' }: Error): string {
  const first = stack.search(/^ {4}at /m);
  return first === -1 ? '' : stack.slice(first, first + TEXT_CHARS_MAX);
}
