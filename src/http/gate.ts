import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Authenticator } from '../auth/authenticate.ts';
import { authorize } from '../auth/authorize.ts';
import type { Access } from '../auth/authorize.ts';
import type { Caller } from '../auth/caller.ts';
import { UnavailableError } from '../lib/unavailable.ts';
import type { Fairness } from './fairness.ts';
import { ProblemError } from './problem.ts';
import type { RequestLog } from './request-log.ts';
import type { WorkShares } from './work-shares.ts';

/** What a route says of itself; the gate does not let one start that says nothing. */
export interface RouteRules {
  /** Null: the route needs neither credential nor protocol header (health, readiness, the document). */
  readonly access: Access | null;
  /** The body is a file, of any media type and with limits of its own; absent: it is JSON. */
  readonly rawBody?: true;
}

declare module 'fastify' {
  interface FastifyRequest {
    caller: Caller | null;
    /** Ends its share of the node's work; null: it has none. */
    endWork: (() => void) | null;
  }
  interface FastifyContextConfig {
    rules?: RouteRules;
  }
}

/** Protocol versions served, both alike. */
export const PROTOCOL = { min: 2, max: 8 } as const;

export interface GateOptions {
  readonly authenticator: Authenticator;
  readonly fairness: Fairness;
  readonly shares: Pick<WorkShares, 'takeNow' | 'take'>;
  readonly features: readonly string[];
  /** Whether the log can be reached: without it nothing is answered, so that no answer claims what is not durable. */
  readonly logReachable: () => boolean;
  readonly requestLog: RequestLog;
  /** Bodies longer than this are refused unread, bytes. */
  readonly bodyBytesMax: number;
}

/**
 * The first checks of every request, in the order that clients rely on: origin, media type, size, protocol,
 * credential with tenant, subject headers, role and scope. Nothing of the body has been read when they are done.
 */
export async function passGate(request: FastifyRequest, options: GateOptions): Promise<void> {
  refuseOrigin(request);
  const rules = request.routeOptions.config.rules;
  if (rules?.rawBody !== true) checkBody(request, options.bodyBytesMax);
  if (rules === undefined) throw new Error(`route ${request.routeOptions.url ?? '?'} has no rules`);
  if (rules.access === null) return;
  checkProtocol(request, options.features);
  request.caller = await authenticated(request, options, rules.access);
  options.fairness.admit(request.caller);
  if (!options.logReachable()) throw new UnavailableError('streams', 'the connection to the log is down');
}

export function refuseOrigin(request: FastifyRequest): void {
  if (request.headers.origin === undefined) return;
  const message = 'Requests from browsers are refused; call the Host from your server.';
  throw new ProblemError({ code: 'origin_rejected', message });
}

/** A route or method that does not exist says so only to someone who sends any credential. */
export function passUnknown(request: FastifyRequest): void {
  refuseOrigin(request);
  if (!/^Bearer +\S/i.test(request.headers.authorization ?? ''))
    throw credentialRequired('Send the key as "Authorization: Bearer <key>".');
}

function credentialRequired(message: string): ProblemError {
  return new ProblemError({ code: 'credential_required', message, headers: { 'www-authenticate': 'Bearer' } });
}

function checkBody(request: FastifyRequest, bytesMax: number): void {
  const { 'content-length': length, 'transfer-encoding': chunked, 'content-type': type } = request.headers;
  const hasBody = chunked !== undefined || (length !== undefined && length !== '0');
  if (!hasBody) return;
  if (!/^application\/json *(;|$)/i.test(type ?? '')) {
    throw new ProblemError({ code: 'unsupported_media_type', message: 'Send the body as application/json.' });
  }
  if (Number(length ?? 0) > bytesMax) throw bodyTooLarge(bytesMax);
}

export function bodyTooLarge(limitBytes: number): ProblemError {
  const message = `The body is longer than ${limitBytes} bytes.`;
  return new ProblemError({ code: 'limit_exceeded', message, details: { limit: 'body', limitBytes } });
}

function checkProtocol(request: FastifyRequest, features: readonly string[]): void {
  const header = request.headers['svc-protocol'];
  const version = typeof header === 'string' && /^\d{1,4}$/.test(header) ? Number(header) : Number.NaN;
  if (version >= PROTOCOL.min && version <= PROTOCOL.max) return;
  const message = `Send Svc-Protocol with a number from ${PROTOCOL.min} to ${PROTOCOL.max}.`;
  throw new ProblemError({ code: 'protocol_unsupported', message, extra: { protocol: { ...PROTOCOL, features } } });
}

/**
 * Waits until the request may be worked on. It is in work until it is answered, or has become a stream of either direction,
 * which is counted as one.
 */
export async function takeShare(
  request: FastifyRequest,
  reply: FastifyReply,
  shares: GateOptions['shares'],
): Promise<void> {
  const { caller } = request;
  if (caller === null || request.routeOptions.config.rules?.rawBody === true) return;
  // A response says once that it is closed: one that has said so already would keep its share.
  if (isGone(request)) throw clientGone();
  const end = shares.takeNow(caller.tenantId) ?? (await waitForShare(caller.tenantId, reply, shares));
  if (isGone(request)) {
    end();
    throw clientGone();
  }
  request.endWork = end;
  reply.raw.once('close', () => endWork(request));
}

async function waitForShare(tenantId: string, reply: FastifyReply, shares: GateOptions['shares']): Promise<() => void> {
  const gone = new AbortController();
  const leave = (): void => gone.abort(clientGone());
  reply.raw.once('close', leave);
  try {
    return await shares.take(tenantId, gone.signal);
  } finally {
    reply.raw.removeListener('close', leave);
  }
}

function isGone({ raw }: FastifyRequest): boolean {
  return raw.socket.destroyed;
}

/** Ends the work on a request whose client has left: it reads no answer. */
export function clientGone(): ProblemError {
  const message = 'The connection was closed before the request was answered.';
  return new ProblemError({ code: 'invalid_request', message });
}

/** More calls do nothing. */
export function endWork(request: FastifyRequest): void {
  request.endWork?.();
  request.endWork = null;
}

/** Refusals of the credential itself; what it may not do, or lacks, only the caller needs to know. */
const LOGGED: ReadonlySet<string> = new Set(['credential_invalid', 'token_expired']);

async function authenticated(
  request: FastifyRequest,
  { authenticator, fairness, requestLog }: GateOptions,
  access: Access,
): Promise<Caller> {
  const caller = await authenticator.authenticate(
    {
      authorization: request.headers.authorization,
      tenant: single(request, 'svc-tenant'),
      subject: single(request, 'svc-subject'),
      scopes: single(request, 'svc-scopes'),
    },
    access.kinds.includes('admin') ? 'admin' : 'tenant',
  );
  if (caller.kind === 'refused' && LOGGED.has(caller.code)) requestLog.refused(request, caller.code);
  if (caller.kind === 'refused' && caller.code === 'credential_invalid') await fairness.refused(request.ip);
  const refusal = caller.kind === 'refused' ? caller : authorize(caller, access);
  if (refusal?.code === 'credential_required') throw credentialRequired(refusal.message);
  if (refusal !== null) throw new ProblemError(refusal);
  if (caller.kind === 'refused') throw new Error('a refused caller has a refusal');
  return caller;
}

/** Node joins repeated headers with a comma and a space, which no valid value of ours contains. */
function single(request: FastifyRequest, name: string): string | undefined {
  const value = request.headers[name];
  return Array.isArray(value) ? value.join(', ') : value;
}

/** The caller of a request that has passed the gate. */
export function callerOf(request: FastifyRequest): Caller {
  if (request.caller === null) throw new Error('the request has not passed the gate');
  return request.caller;
}
