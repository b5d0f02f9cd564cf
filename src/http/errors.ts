import type { FastifyError, FastifyRequest } from 'fastify';
import { hasZodFastifySchemaValidationErrors } from 'fastify-type-provider-zod';
import { UnavailableError } from '../lib/unavailable.ts';
import { OlderNodesError } from '../lib/older-nodes.ts';
import { QueueFullError } from '../lib/keyed-queue.ts';
import {
  ParkedCommitError,
  ReadsBusyError,
  ReadTooLongError,
  UnbuiltReadModelsError,
} from '../projections/unavailable.ts';
import { UploadBrokenError } from '../commands/artifact/reservation.ts';
import { ArtifactGoneError } from '../commands/artifact/read.ts';
import { bodyTooLarge, clientGone } from './gate.ts';
import { ProblemError, refused } from './problem.ts';
import type { Problem } from './problem.ts';

/** Seconds after which a client that got "unavailable" should try again. */
const RETRY_AFTER_SECONDS = '1';
const ISSUES_MAX = 20;

/** What the client learns of an error. Null: nothing, it is a bug and belongs in the log. */
export function problemOf(error: unknown, bodyBytesMax: number): Problem | null {
  if (error instanceof ProblemError) return error.problem;
  if (error instanceof ReadsBusyError) return { ...unavailable('database'), message: READS_BUSY };
  if (error instanceof ReadTooLongError) return { ...unavailable('database'), message: READ_TOO_LONG };
  const told = explained(error);
  if (told !== null) return told;
  if (error instanceof ArtifactGoneError) return refused(error.rejection).problem;
  if (error instanceof UnavailableError) return unavailable(error.dependency);
  if (error instanceof UploadBrokenError) return broken();
  if (error instanceof QueueFullError) return busy();
  if (hasZodFastifySchemaValidationErrors(error)) return invalid(error.validation, error.validationContext ?? 'body');
  return frameworkProblem(error, bodyBytesMax);
}

/** What is unavailable for a reason that an immediate retry does not change. */
function explained(error: unknown): Problem | null {
  if (error instanceof ParkedCommitError) return { ...unavailable('database'), message: PARKED };
  if (error instanceof OlderNodesError) return { ...unavailable('upgrade'), message: OLDER };
  if (error instanceof UnbuiltReadModelsError) return { ...unavailable('database'), message: UNBUILT };
  return null;
}

const PARKED =
  'The response would be incomplete: a commit is parked, because this version could not project it. The operator has been alerted.';

const OLDER =
  'A node of the previous version is still running and does not know this command. Send it again after the upgrade.';

const UNBUILT =
  'The read models of this version are being built from the log. Retry in a moment, or at a node of the previous version.';

const READS_BUSY =
  'This tenant has as many reads under way as it may. Send fewer at a time, and this one again in a moment.';

const READ_TOO_LONG = 'The query took too long. Ask for less: a lower limit, a narrower filter or a shorter period.';

function unavailable(dependency: string): Problem {
  return {
    code: 'unavailable',
    message: 'A part of the Host cannot be reached. Send the request again, with the same idempotencyKey, in a moment.',
    details: { dependency },
    headers: { 'retry-after': RETRY_AFTER_SECONDS },
  };
}

function broken(): Problem {
  const issues = [{ path: 'body', message: 'ended before it was whole' }];
  const message = 'The upload was incomplete, and nothing was stored. Send it again.';
  return { code: 'invalid_request', message, details: { issues } };
}

function busy(): Problem {
  const message = 'Too many commands are waiting for this resource. Send the command again in a moment.';
  return { code: 'rate_limited', message, headers: { 'retry-after': RETRY_AFTER_SECONDS } };
}

function invalid(
  validation: readonly { instancePath: string; message?: string; params?: unknown }[],
  where: string,
): Problem {
  const issues = validation.slice(0, ISSUES_MAX).map(({ instancePath, message = 'is invalid' }) => ({
    path: [where === 'body' ? '' : where, ...instancePath.split('/')].filter((part) => part !== '').join('.'),
    message,
  }));
  const [first] = issues;
  const message = `The request is invalid: ${first === undefined ? '' : `${first.path === '' ? where : first.path}: ${first.message}`}`;
  return { code: 'invalid_request', message, details: { issues } };
}

function frameworkProblem(error: unknown, bodyBytesMax: number): Problem | null {
  const { code, statusCode } = fastifyError(error);
  if (code === 'FST_ERR_CTP_BODY_TOO_LARGE') return bodyTooLarge(bodyBytesMax).problem;
  if (code === 'FST_ERR_CTP_INVALID_MEDIA_TYPE') {
    return { code: 'unsupported_media_type', message: 'Send the body as application/json.' };
  }
  if (code === 'FST_ERR_BAD_URL')
    return invalid([{ instancePath: '', message: 'has a malformed percent-encoding' }], 'path');
  if (code.startsWith('FST_ERR_CTP') || (error instanceof SyntaxError && statusCode === 400)) {
    return invalid([{ instancePath: '', message: 'is not valid JSON' }], 'body');
  }
  return null;
}

function fastifyError(error: unknown): { code: string; statusCode: number } {
  if (!(error instanceof Error)) return { code: '', statusCode: 500 };
  const { code, statusCode } = error as Partial<FastifyError>;
  return { code: typeof code === 'string' ? code : '', statusCode: typeof statusCode === 'number' ? statusCode : 500 };
}

/** What ends a request whose client has left in the middle of its body. Null: the error is another one. */
export function brokenBody(error: unknown, { raw }: FastifyRequest): Problem | null {
  return error instanceof Error && error === raw.errored && raw.socket.destroyed ? clientGone().problem : null;
}

/** The internal error's answer: no detail leaks, the log line has the same request id. */
export function internalProblem(error: unknown, request: FastifyRequest): Problem {
  request.log.error({ err: error, requestId: request.id, route: request.routeOptions.url }, 'a request failed');
  return { code: 'internal_error', message: 'The Host met an internal error. Report it with the requestId.' };
}
