import type { RouteRow } from './route-row.ts';

const oneArtifact = { realm: 'tenant', scope: 'sessions:own', params: { artifactId: 'af_1' } } as const;
const oneVersion = { ...oneArtifact, params: { artifactId: 'af_1', version: 'latest' } } as const;
const BAD_IDS = ['', '%00', 'a%20b', '%2Fa', 'x'.repeat(201)];
const BAD_NAMES = ['', 'a%2Fb', 'a%5Cb', '%00', 'a%0D%0Ax', '%7F', '..', 'x'.repeat(256)];
const BAD_LABELS = ['', 'team', '=x', 'a%20b=x', 'team=%00', `team=${'x'.repeat(257)}`];

/** How to call each route of artifacts rightly. */
export const ARTIFACT_ROUTES: Readonly<Record<string, RouteRow>> = {
  'GET /v1/tenant/artifacts': { realm: 'tenant' },
  'PUT /v1/tenant/artifacts': {
    realm: 'tenant',
    bodies: [
      {
        whole: { requestId: 'rq', limits: { fileBytes: 1, totalBytes: 2 } },
        required: ['limits'],
        wrong: [
          { requestId: '' },
          ...[1.5, -1, 2 ** 53, '1', null].map((bytes) => ({ limits: { fileBytes: bytes } })),
          ...[1.5, -1, 2 ** 50 + 1, '1', null].map((bytes) => ({ limits: { totalBytes: bytes } })),
        ],
      },
    ],
  },
  'POST /v1/artifacts': {
    realm: 'tenant',
    scope: 'sessions:own',
    rawBody: true,
    query: { name: BAD_NAMES, sessionId: BAD_IDS, label: BAD_LABELS },
  },
  'GET /v1/artifacts': { realm: 'tenant', scope: 'sessions:own', limitMax: 1_000, query: { sessionId: BAD_IDS } },
  'GET /v1/artifacts/{artifactId}': oneArtifact,
  'DELETE /v1/artifacts/{artifactId}': oneArtifact,
  'POST /v1/artifacts/{artifactId}/versions': { ...oneArtifact, rawBody: true },
  'POST /v1/artifacts/{artifactId}/links': {
    ...oneArtifact,
    bodies: [
      {
        whole: { requestId: 'rq', version: 1, expiresIn: 300 },
        required: [],
        wrong: [
          { requestId: '' },
          ...[0, 1.5, 1_000_000_000, 'latest'].map((version) => ({ version })),
          ...[0, 901, 1.5].map((expiresIn) => ({ expiresIn })),
        ],
      },
    ],
  },
  'GET /v1/artifacts/{artifactId}/versions/{version}/content': oneVersion,
  'GET /v1/artifacts/{artifactId}/versions/{version}/tree': oneVersion,
  'GET /v1/artifacts/{artifactId}/versions/{version}/files/{path}': {
    ...oneVersion,
    params: { ...oneVersion.params, path: 'a' },
    freeParams: ['path'],
  },
  'GET /v1/artifacts/{artifactId}/versions/{version}/diff': {
    ...oneVersion,
    query: { from: ['', '0', '-1', '01', '1.5', 'LATEST', 'x', '%00'] },
  },
  'GET /v1/artifacts/{artifactId}/versions/{version}/zip': oneVersion,
  'GET /v1/artifact-links/{token}': { realm: 'open', params: { token: 'x' }, freeParams: ['token'] },
};
