import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '../lib/clock.ts';
import type { Logger } from '../lib/logger.ts';
import { TokenBuckets } from '../lib/token-buckets.ts';

export interface RequestLogOptions {
  readonly logger: Logger;
  readonly clock: Clock;
  /** Whether every answered request has a line; refused credentials have one in any case. */
  readonly all: boolean;
}

/** Lines about refused credentials allowed per second; the next one says how many were left out. */
const REFUSALS_PER_SECOND = 20;

/**
 * What is logged of requests: where from, which route, the outcome, whose credential. Never a header, a query, a body
 * or a path as it was sent: these hold keys, tokens and content; the request id finds the rest.
 */
export class RequestLog {
  readonly #options: RequestLogOptions;
  readonly #refusals: TokenBuckets;
  #leftOut = 0;

  constructor(options: RequestLogOptions) {
    this.#options = options;
    const rate = { perSecond: REFUSALS_PER_SECOND, burst: REFUSALS_PER_SECOND };
    this.#refusals = new TokenBuckets(rate, { clock: options.clock, namesMax: 1 });
  }

  answered(request: FastifyRequest, reply: FastifyReply): void {
    if (!this.#options.all) return;
    const line = { ...placeOf(request), status: reply.statusCode, ms: Math.round(reply.elapsedTime * 10) / 10 };
    this.#options.logger.info(line, 'a request was answered');
  }

  /** This address is trying out keys, or a client has an old one. Under attack a sample tells as much as all of it. */
  refused(request: FastifyRequest, code: string): void {
    if (this.#refusals.take('') > 0) {
      this.#leftOut++;
      return;
    }
    const leftOut = this.#leftOut;
    this.#leftOut = 0;
    const line = { ...placeOf(request), code, ...(leftOut === 0 ? {} : { leftOut }) };
    this.#options.logger.warn(line, 'a credential was refused');
  }
}

function placeOf(request: FastifyRequest) {
  const { caller } = request;
  return {
    requestId: request.id,
    address: request.ip,
    method: request.method,
    route: request.routeOptions.url ?? 'unknown',
    ...(caller === null ? {} : { tenant: caller.tenantId, caller: `${caller.kind}:${caller.principalId}` }),
  };
}
