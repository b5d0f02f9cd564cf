import { fastify, LogController } from 'fastify';
import type { FastifyBaseLogger, FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { validatorCompiler } from 'fastify-type-provider-zod';
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { randomUUID } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import type { Logger } from '../lib/logger.ts';
import { limitBodyTime } from './body-time.ts';
import { addDocument } from './document.ts';
import { brokenBody, internalProblem, problemOf } from './errors.ts';
import { endWork, passGate, passUnknown, refuseOrigin, takeShare } from './gate.ts';
import type { GateOptions } from './gate.ts';
import { notFound, problemBody, statusOf } from './problem.ts';
import type { Problem, ProblemError } from './problem.ts';
import { drainBriefly } from './upload-body.ts';
import { noQuery, problem } from './wire/schemas.ts';
import { isMalformed, malformedUrl, refuseUnparsed, routableUrl } from './unreadable.ts';
import { ReadsBusyError } from '../projections/unavailable.ts';

export interface ServerOptions {
  readonly logger: Logger;
  /** Of the Host, for the document. */
  readonly version: string;
  readonly gate: GateOptions;
  /** Time for a client to send its headers, its whole request, and an upload. */
  readonly timeouts: { readonly headersMs: number; readonly requestMs: number; readonly uploadMs: number };
  /** Addresses and networks whose `X-Forwarded-For` says where a request comes from. */
  readonly trustedProxies: readonly string[];
  /** Those that a node of its roles serves; the others do not exist. */
  readonly routes: readonly FastifyPluginAsyncZod[];
  /** The node is about to stop: a client's next request should find another. */
  readonly isDraining: () => boolean;
  /** Called for every answered request, for the metrics. */
  readonly onResponse: (request: { readonly route: string; readonly status: number; readonly ms: number }) => void;
}

/** How often connections are checked for clients that are out of time. */
const TIMEOUT_CHECK_MS = 1_000;
/** Longer than the idle timeouts of usual load balancers, so that we do not close during a request. */
const KEEP_ALIVE_TIMEOUT_MS = 72_000;
/** All headers together with the request line: a token of 16 KiB and as much besides. */
const HEADER_BYTES_MAX = 32_768;
/** A parameter that is too long finds its route, and is refused there as invalid. */
const PARAM_CHARS_MAX = HEADER_BYTES_MAX;

/** The HTTP edge: limits, the gate, the routes, and one form for every refusal. */
export async function createServer(options: ServerOptions): Promise<FastifyInstance> {
  const { gate, logger, timeouts, trustedProxies } = options;
  const app = fastify({
    loggerInstance: withoutChatter(logger) as FastifyBaseLogger,
    logController: new LogController({ disableRequestLogging: true }),
    bodyLimit: gate.bodyBytesMax,
    // The most that any request may take; a body that is not an upload has less (body-time.ts).
    trustProxy: trustedProxies.length === 0 ? false : [...trustedProxies],
    requestTimeout: Math.max(timeouts.requestMs, timeouts.uploadMs),
    keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
    http: {
      headersTimeout: timeouts.headersMs,
      connectionsCheckingInterval: TIMEOUT_CHECK_MS,
      maxHeaderSize: HEADER_BYTES_MAX,
    },
    // `closeServer` bounds what is under way; until then every request is served.
    forceCloseConnections: 'idle',
    return503OnClosing: false,
    genReqId: ({ headers }) => requestIdOf(headers['x-request-id']),
    routerOptions: { maxParamLength: PARAM_CHARS_MAX, caseSensitive: true, ignoreTrailingSlash: false },
    rewriteUrl: routableUrl,
    clientErrorHandler: refuseUnparsed,
    frameworkErrors: (error, request, reply) => {
      void refuseUnrouted(error, request, reply, gate);
    },
  });
  app.setValidatorCompiler(validatorCompiler);
  // Responses are made by our own code from checked parts; the tests hold them against the schemas of the document.
  app.setSerializerCompiler(() => (data) => JSON.stringify(data));
  app.decorateRequest('caller', null);
  app.decorateRequest('endWork', null);
  app.removeContentTypeParser('text/plain');
  acceptEmptyJson(app);
  // Every operation of the document says what a refusal looks like.
  app.addHook('onRoute', (route) => {
    route.schema = { ...route.schema, response: { ...Object(route.schema?.response), default: problem } };
    if (route.config?.rules?.access) route.schema = { querystring: noQuery, ...route.schema };
  });
  addHooks(app, options);
  await addDocument(app, options.version);
  for (const plugin of options.routes) await app.register(plugin);
  return app;
}

/** The framework logs at `info` where it listens; the Host says that itself, in words. */
function withoutChatter(logger: Logger): Logger {
  return logger.level === 'info' ? logger.child({}, { level: 'warn' }) : logger;
}

function addHooks(app: FastifyInstance, { gate, timeouts, isDraining, onResponse }: ServerOptions): void {
  app.addHook('onRequest', async (request, reply) => {
    reply.header('x-request-id', request.id);
    // The client's next request finds another node, instead of a connection that ends during it.
    if (isDraining()) reply.header('connection', 'close');
    if (request.routeOptions.config.rules?.rawBody !== true) limitBodyTime(request.raw, timeouts.requestMs);
    // An empty parameter is a path with an extra slash, and that is another route.
    if (request.is404 || Object.values(Object(request.params)).includes('')) throw unknownRoute(request);
    await passGate(request, gate);
    await takeShare(request, reply, gate.shares);
  });
  // Hooks that wait for nothing call back: a promise for each request and hook is what they would cost most.
  app.addHook('preValidation', (request, _reply, done) => {
    done(isMalformed(request.raw) ? malformedUrl() : undefined);
  });
  app.addHook('onSend', (request, _reply, payload, done) => {
    endWork(request);
    done(null, payload);
  });
  app.addHook('onResponse', (request, reply, done) => {
    gate.requestLog.answered(request, reply);
    onResponse({ route: request.routeOptions.url ?? 'unknown', status: reply.statusCode, ms: reply.elapsedTime });
    done();
  });
  app.setErrorHandler(async (error, request, reply) => {
    const known = problemOf(error, gate.bodyBytesMax) ?? brokenBody(error, request);
    const problem = known ?? internalProblem(error, request);
    // Nothing is down when a tenant asks for too much; that is counted, not logged for each request.
    if (problem.code === 'unavailable' && !(error instanceof ReadsBusyError))
      request.log.warn({ err: error, requestId: request.id }, 'a dependency is unavailable');
    return await sendProblem(reply, problem, request.id);
  });
}

/** Before the body is read: a route that does not exist does not say how to call it. */
function unknownRoute(request: FastifyRequest): ProblemError {
  passUnknown(request);
  return isMalformed(request.raw) ? malformedUrl() : notFound('route');
}

/** What the router gives up on never reaches the hooks: the checks before it run here. */
async function refuseUnrouted(
  error: FastifyError,
  request: FastifyRequest,
  reply: FastifyReply,
  gate: GateOptions,
): Promise<void> {
  reply.header('x-request-id', request.id);
  try {
    refuseOrigin(request);
    passUnknown(request);
    throw error;
  } catch (refusal) {
    await sendProblem(reply, problemOf(refusal, gate.bodyBytesMax) ?? internalProblem(refusal, request), request.id);
  }
}

async function sendProblem(reply: FastifyReply, problem: Problem, requestId: string): Promise<FastifyReply> {
  drainBriefly(reply.request.raw);
  return await reply
    .code(statusOf(problem))
    .headers({ ...problem.headers })
    .type('application/json; charset=utf-8')
    .send(JSON.stringify(problemBody(problem, requestId)));
}

/** Many clients send the JSON media type without a body. A route that needs one refuses that by its schema. */
function acceptEmptyJson(app: FastifyInstance): void {
  const parse = app.getDefaultJsonParser('error', 'error');
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (request, body: string, done) => {
    if (body === '') done(null, undefined);
    else void parse(request, body, done);
  });
}

function requestIdOf(header: string | string[] | undefined): string {
  return typeof header === 'string' && /^[\x21-\x7e]{1,128}$/.test(header) ? header : randomUUID();
}

/** How long requests under way get at a close, ms. */
const CLOSE_MS = 5_000;

/** Takes no more requests and ends what is under way, within a bound. */
export async function closeServer(app: FastifyInstance): Promise<void> {
  // A whole turn of the event loop, in which what has arrived is read: a connection that only looks idle would be reset with
  // a request in it.
  await setImmediate();
  await setImmediate();
  const late = setTimeout(() => app.server.closeAllConnections(), CLOSE_MS);
  await app.close();
  clearTimeout(late);
}
