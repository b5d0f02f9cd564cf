import { APICallError } from '@ai-sdk/provider';
import { expect, test } from 'vitest';
import { failureOf } from './failure.ts';

const NEVER = new AbortController().signal;

/** As the library throws it: what the network said is the cause, or a cause of that. */
function thrown(code: string): Error {
  const cause = new TypeError('fetch failed', { cause: Object.assign(new Error('secret words'), { code }) });
  return new APICallError({ message: 'Cannot connect to API', cause, url: 'https://x', requestBodyValues: {} });
}

function failure(code: string) {
  return failureOf(thrown(code), { signal: NEVER, nowMs: 0 });
}

test('whatever keeps a connection from being made, or breaks it, can be tried again and is told as such', () => {
  for (const code of [
    ...['EAI_AGAIN', 'EAI_FAIL', 'ENOTFOUND', 'ENODATA', 'ECONNREFUSED', 'ECONNRESET', 'EHOSTUNREACH', 'EPIPE'],
    ...['EPROTO', 'E2BIG', 'UND_ERR_SOCKET', 'UND_ERR_CLOSED'],
    ...['UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'UNABLE_TO_GET_ISSUER_CERT_LOCALLY', 'DEPTH_ZERO_SELF_SIGNED_CERT'],
    ...['HOSTNAME_MISMATCH', 'CERT_HAS_EXPIRED', 'CRL_HAS_EXPIRED', 'INVALID_CA', 'ERR_TLS_CERT_ALTNAME_INVALID'],
    ...['ERR_SSL_WRONG_VERSION_NUMBER', 'OUT_OF_MEM'],
  ]) {
    const { error, retryAfterMs } = failure(code);
    expect({ code: error.code, retryAfterMs }, code).toEqual({ code: 'model_unreachable', retryAfterMs: 0 });
    expect(error.message).toContain(code);
    expect(error.message).not.toContain('secret');
  }
});

test('a time-out is told apart', () => {
  for (const code of ['ETIMEDOUT', 'UND_ERR_CONNECT_TIMEOUT', 'UND_ERR_HEADERS_TIMEOUT', 'UND_ERR_BODY_TIMEOUT']) {
    expect(failure(code), code).toMatchObject({ error: { code: 'model_timeout' }, retryAfterMs: 0 });
  }
});

test('an answer that is not valid HTTP, cannot be unpacked, or is told in words of another kind is an invalid one', () => {
  for (const code of [
    ...['HPE_INVALID_CONSTANT', 'HPE_HEADER_OVERFLOW', 'Z_DATA_ERROR', 'Z_BUF_ERROR', 'ZSTD_error_prefix_unknown'],
    ...['ERR__ERROR_FORMAT_PADDING_1', 'ERR_INVALID_ARG_TYPE', '', 'lower case', 'ECONN\nsecret'],
  ]) {
    expect(failure(code), code).toMatchObject({ error: { code: 'model_answer_invalid' }, retryAfterMs: 0 });
  }
});
