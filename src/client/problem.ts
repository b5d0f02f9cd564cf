import type { Problem as ProblemBody } from './api.ts';

/** A refusal of the Host as an error: its code says what is wrong, its message what to do. */
export class Problem extends Error {
  override readonly name = 'Problem';
  readonly code: ProblemBody['code'];
  /** The HTTP status. */
  readonly status: number;
  /** Names the request in the Host's log. */
  readonly requestId: string | undefined;
  readonly details: Readonly<Record<string, unknown>> | undefined;
  /** With `session_busy`: the turn that is active. */
  readonly activeTurnId: string | undefined;

  constructor(status: number, body: ProblemBody) {
    super(body.message);
    this.status = status;
    this.code = body.code;
    this.requestId = body.requestId;
    this.details = body.details;
    this.activeTurnId = body.activeTurnId;
  }
}

/** The refusal in an answer; an answer from something in between has a code of its own. */
export async function problemOf(response: Response): Promise<Problem> {
  const text = await response.text().catch(() => '');
  const requestId = response.headers.get('x-request-id') ?? undefined;
  const body = parsed(text);
  if (isProblem(body)) return new Problem(response.status, { ...body, requestId: body.requestId ?? requestId });
  const message = `The answer with status ${response.status} is not the Host's: ${text.slice(0, 200)}`;
  return new Problem(response.status, { status: 'rejected', code: 'not_from_the_host', message, requestId });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isProblem(value: unknown): value is ProblemBody {
  return typeof value === 'object' && value !== null && 'code' in value && 'message' in value;
}
