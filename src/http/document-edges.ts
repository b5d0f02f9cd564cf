import { optional } from '../domain/kernel/optional.ts';
import type { Sends } from './described.ts';
import { mapOperations, mapValues, objectOf } from './document-shapes.ts';
import type { Json } from './document-shapes.ts';
import { PROTOCOL } from './gate.ts';
import { STATUS_OF } from './problem.ts';

/** What about an operation follows from its route, not its schemas. */
export interface OperationFacts {
  readonly realm: 'open' | 'admin' | 'tenant';
  readonly reads: boolean;
  readonly takes: { readonly params: boolean; readonly body: boolean; readonly file: boolean };
  /** Null: JSON. */
  readonly sends: Sends | null;
}

const header = (name: string, description: string, more: Json = {}): Json => ({
  name,
  in: 'header',
  description,
  schema: { type: 'string' },
  ...more,
});

const PARAMETERS: Json = {
  Protocol: header('Svc-Protocol', `The protocol version, ${PROTOCOL.min} to ${PROTOCOL.max}.`, {
    required: true,
    example: String(PROTOCOL.max),
  }),
  Tenant: header('Svc-Tenant', 'The tenant id.', { required: true, example: 'tn_01K9Q4' }),
  Subject: header('Svc-Subject', 'The person that an application key acts for.', { example: 'ann@example.com' }),
  Scopes: header('Svc-Scopes', 'Scopes of the subject, separated by spaces; required with it.', {
    example: 'agents:read sessions:own',
  }),
  RequestId: header(
    'x-request-id',
    'Comes back in the answer: 1 to 128 visible ASCII characters. Absent: one is made.',
  ),
  LastEventId: header('Last-Event-ID', 'The id of the last frame that was read; the stream resumes after it.'),
  Range: header('Range', 'One range of bytes.', { example: 'bytes=0-1023' }),
  IfRange: header('If-Range', 'An entity tag: the range holds only while the file is this one.'),
  IfNoneMatch: header('If-None-Match', 'Entity tags: answered with 304 when the file is one of them.'),
};

const answerHeader = (description: string, type = 'string'): Json => ({ description, schema: { type } });

const HEADERS: Json = {
  RequestId: answerHeader('The id of this request, for its traces and logs.'),
  RetryAfter: answerHeader('Seconds to wait before trying again.', 'integer'),
  Authenticate: answerHeader('Always `Bearer`.'),
  ETag: answerHeader('The quoted sha256 of the file.'),
  ContentRange: answerHeader('Which bytes these are, of how many.'),
  ContentDisposition: answerHeader('The name of the file.'),
};

const refHeader = (name: string): Json => ({ $ref: `#/components/headers/${name}` });
const ID = { 'x-request-id': refHeader('RequestId') };
const RETRY = { 'retry-after': refHeader('RetryAfter') };
const PROBLEM = { 'application/json': { schema: { $ref: '#/components/schemas/Problem' } } };

const SAYS: Readonly<Record<number, readonly [name: string, description: string, headers?: Json]>> = {
  400: ['Invalid', 'The request is not valid'],
  401: ['Unauthorized', 'The credential is missing or not valid', { 'www-authenticate': refHeader('Authenticate') }],
  403: ['Forbidden', 'The credential may not do this'],
  404: ['NotFound', 'It does not exist, or the caller may not see it'],
  409: ['Conflict', 'It conflicts with the present state'],
  413: ['TooLarge', 'A size limit is exceeded'],
  415: ['UnsupportedMediaType', 'The body has another media type'],
  416: [
    'RangeNotSatisfiable',
    'The range begins after the end of the file',
    { 'content-range': refHeader('ContentRange') },
  ],
  426: ['ProtocolUnsupported', 'The protocol version is not served'],
  429: ['RateLimited', 'Too many requests or streams', RETRY],
  503: ['Unavailable', 'A dependency is unavailable', RETRY],
};

/** Refusals by status, each with the codes that it may have. */
const RESPONSES: Json = Object.fromEntries([
  ...Object.entries(SAYS).map(([status, [name, says, headers]]) => {
    const codes = Object.entries(STATUS_OF).flatMap(([code, of]) => (of === Number(status) ? [`\`${code}\``] : []));
    if (status === '409') codes.push('`limit_exceeded` of a count');
    return [name, { description: `${says}: ${codes.join(', ')}.`, headers: { ...ID, ...headers }, content: PROBLEM }];
  }),
  ['Refused', { description: 'Any other refusal.', headers: ID, content: PROBLEM }],
]);

const refused = (status: number): Json => ({ $ref: `#/components/responses/${SAYS[status]?.[0] ?? 'Refused'}` });

const MEANING: Readonly<Record<string, string>> = {
  '200': 'Done.',
  '201': 'Created.',
  '202': 'Accepted: it is on disk.',
  '503': 'Not ready.',
};

const BYTES = { '*/*': { schema: { type: 'string', format: 'binary' } } };
const FILE_HEADERS = { ...ID, etag: refHeader('ETag'), 'content-disposition': refHeader('ContentDisposition') };

/** Answers of an operation that are not JSON, by status. */
const SENT: Readonly<Record<Sends, Readonly<Record<string, Json>>>> = {
  file: {
    '200': { description: 'The bytes.', headers: FILE_HEADERS, content: BYTES },
    '206': {
      description: 'A range of the bytes.',
      headers: { ...FILE_HEADERS, 'content-range': refHeader('ContentRange') },
      content: BYTES,
    },
    '304': { description: 'The caller already has this version.', headers: { ...ID, etag: refHeader('ETag') } },
    '416': refused(416),
  },
  archive: {
    '200': {
      description: 'A zip archive, made on the way.',
      headers: { ...ID, 'content-disposition': refHeader('ContentDisposition') },
      content: { 'application/zip': { schema: { type: 'string', format: 'binary' } } },
    },
  },
  records: {
    '200': {
      description:
        'Server-sent events. The first frame is `event: ready` with `data: {}` and no id. Each further frame is one record: `id` is its cursor, `event` its type, `data` the record as JSON in one line. With `previews=true` frames `event: preview` without id come while a model answers: `{ turnId, modelCallId, offset, text? | toolCall?: { index, name, input }, agent? }`, where `text` or `input` is the next piece and `offset` counts the UTF-16 units of that text, or that call, before it. While a tool of an MCP server runs, they are `{ turnId, callId, toolName, progress: { progress, total?, message? }, agent? }`, at most ten a second. They may be lost: `message.assistant` of the same `modelCallId`, or `action.completed` of the same `callId`, replaces them. Lines that begin with `:` keep a silent stream alive. A stream that ends is resumed on any node with the last id.',
      headers: ID,
      content: { 'text/event-stream': { schema: { $ref: '#/components/schemas/EventRecord' } } },
    },
  },
  work: {
    '200': {
      description:
        'Server-sent events. Each frame is `event: work_available`, its `data` a signal as JSON in one line, without an id: a stream that ends is opened again. With `previews=true` frames `event: preview` without id come while a model answers: `{ turnId, modelCallId, offset, text? | toolCall?: { index, name, input }, agent? }`, where `text` or `input` is the next piece and `offset` counts the UTF-16 units of that text, or that call, before it. They may be lost, and `message.assistant` of the same `modelCallId` replaces them. Lines that begin with `:` keep a silent stream alive.',
      headers: ID,
      content: { 'text/event-stream': { schema: { $ref: '#/components/schemas/WorkAvailable' } } },
    },
  },
};

/**
 * Adds to every operation what its route says: headers, refusals, bytes, streams, and an example of its body; and to
 * the components what they share.
 */
export function withEdges(document: Json, facts: ReadonlyMap<string, OperationFacts>, examples: Json): Json {
  const paths = mapOperations(objectOf(document['paths']), (operation) => {
    const id = String(operation['operationId']);
    const fact = facts.get(id);
    if (fact === undefined) throw new Error(`nothing is known of the operation ${id}`);
    const { parameters, responses, ...rest } = operation;
    return {
      ...rest,
      ...bodyOf(operation, fact, examples[id]),
      parameters: [...(Array.isArray(parameters) ? parameters : []), ...parametersOf(fact)],
      responses: responsesOf(objectOf(responses), fact),
    };
  });
  const common = { parameters: PARAMETERS, headers: HEADERS, responses: RESPONSES };
  return { ...document, paths, components: { ...objectOf(document['components']), ...common } };
}

function parametersOf({ realm, sends }: OperationFacts): Json[] {
  const names = {
    open: [],
    admin: ['Protocol'],
    tenant: ['Protocol', 'Tenant', 'Subject', 'Scopes'],
  }[realm];
  const more = { file: ['Range', 'IfRange', 'IfNoneMatch'], records: ['LastEventId'], archive: [], work: [] };
  const all = [...names, 'RequestId', ...(sends === null ? [] : more[sends])];
  return all.map((name) => ({ $ref: `#/components/parameters/${name}` }));
}

function bodyOf({ requestBody }: Json, { takes }: OperationFacts, example: unknown): Json {
  if (takes.file) return { requestBody: { required: true, content: BYTES } };
  if (requestBody === undefined) return {};
  const content = mapValues(objectOf(objectOf(requestBody)['content']), (media) => ({
    ...objectOf(media),
    ...optional({ example }),
  }));
  return { requestBody: { ...objectOf(requestBody), content } };
}

function responsesOf(described: Json, fact: OperationFacts): Json {
  const { default: _, ...own } = described;
  const answers = mapValues(own, (response, status) => ({
    ...objectOf(response),
    description: MEANING[status] ?? 'The answer.',
    headers: ID,
  }));
  const statuses = refusalsOf(fact).filter((status) => !(status in answers));
  return {
    ...answers,
    ...(fact.sends === null ? {} : SENT[fact.sends]),
    ...Object.fromEntries(statuses.map((status) => [status, refused(status)])),
    default: { $ref: '#/components/responses/Refused' },
  };
}

function refusalsOf({ realm, reads, takes }: OperationFacts): number[] {
  const guarded = realm === 'open' ? [] : [400, 401, 426, 429];
  const sent = takes.body || takes.file;
  return [
    403,
    ...guarded,
    ...(takes.params ? [404] : []),
    ...(reads ? [] : [409]),
    ...(sent ? [413, 415] : []),
    503,
  ].toSorted((a, b) => a - b);
}
