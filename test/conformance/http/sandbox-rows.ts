import { LONG } from './route-row.ts';
import type { RouteRow } from './route-row.ts';

const readSandbox = { realm: 'tenant', scope: 'sessions:own', params: { sandboxId: 'box' } } as const;
const oneSandbox = { ...readSandbox, scope: 'sandboxes:write' } as const;
const params = { sandboxId: 'box', path: 'a' };
const BAD_PATHS = ['', '%2Fa', 'a%2F..%2Fb', '..', 'a%2F%2Fb', '%00', 'a%5Cb', 'x'.repeat(1_025)];
/** A record is named by both together. */
const NO_RECORD = { sessionId: ['', 's'], cursor: ['', 'x'] };
const BAD_HOSTS = ['', 'a b', 'http://a', '*', 'a:0', '.a', 'a/b'];

/** How to call each route of sandboxes rightly. */
export const SANDBOX_ROUTES: Readonly<Record<string, RouteRow>> = {
  'GET /v1/tenant/sandbox': { realm: 'tenant' },
  'PUT /v1/sandboxes/{sandboxId}': {
    ...oneSandbox,
    bodies: [
      {
        whole: {
          requestId: 'rq',
          kind: 'virtual',
          labels: { team: 'x' },
          spec: { source: { artifactId: 'af_1', version: 1 }, network: { allow: ['a.example:443'] }, python: true },
        },
        free: ['labels'],
        required: ['spec.source.artifactId', 'spec.network.allow'],
        wrong: [
          { requestId: '' },
          { requestId: LONG },
          ...['', 'cloud', 'VIRTUAL', 'pod'].map((kind) => ({ kind })),
          ...[{ '': 'x' }, { a: 1 }, { a: 'x'.repeat(257) }].map((labels) => ({ labels })),
          ...BAD_HOSTS.map((host) => ({ spec: { network: { allow: [host] } } })),
          ...[0, 1.5, '1'].map((version) => ({ spec: { source: { artifactId: 'af_1', version } } })),
          { spec: { image: 'debian' } },
        ],
      },
      {
        whole: {
          kind: 'pod',
          spec: { image: 'debian', cpus: 1, memory: '1Gi', storage: '1Gi', idle: '15m', ttl: '1d' },
        },
        required: ['kind'],
        wrong: [
          ...['', '0', '1 Gi', '-1'].map((memory) => ({ kind: 'pod', spec: { memory } })),
          ...['', '15', '0m', '1w'].map((idle) => ({ kind: 'pod', spec: { idle } })),
          ...[0, -1, '1'].map((cpus) => ({ kind: 'pod', spec: { cpus } })),
          { kind: 'pod', spec: { python: true } },
        ],
      },
    ],
  },
  'GET /v1/sandboxes': {
    realm: 'tenant',
    scope: 'sessions:own',
    limitMax: 200,
    query: {
      label: ['', 'team', '=x', 'team=x%00'],
      state: ['', 'done', 'READY', 'ready%00'],
    },
  },
  'GET /v1/sandboxes/{sandboxId}': readSandbox,
  'POST /v1/sandboxes/{sandboxId}/stop': oneSandbox,
  'POST /v1/sandboxes/{sandboxId}/reset': oneSandbox,
  'DELETE /v1/sandboxes/{sandboxId}': oneSandbox,
  'GET /v1/sandboxes/{sandboxId}/events': readSandbox,
  'GET /v1/sandboxes/{sandboxId}/tree': { ...readSandbox, query: { path: BAD_PATHS, ...NO_RECORD } },
  'GET /v1/sandboxes/{sandboxId}/files/{path}': { ...readSandbox, params, freeParams: ['path'], query: NO_RECORD },
  'PUT /v1/sandboxes/{sandboxId}/files/{path}': { ...oneSandbox, params, rawBody: true, freeParams: ['path'] },
  'DELETE /v1/sandboxes/{sandboxId}/files/{path}': { ...oneSandbox, params, freeParams: ['path'] },
};
