import type { BodyRow, Json, RouteRow } from './route-row.ts';

const LONG = 'x'.repeat(257);
const provider = { provider: 'openai' };
const badApiKeys = ['', 'a b', 'ä', 'a\nb', 'x'.repeat(4_097)];
const badAddresses = [
  ...['', 'models', '/v1', 'models.example/v1', 'ftp://models.example', 'file:///etc/passwd', 'data:,x'],
  ...[
    'http://models.example/v1',
    'http://127.0.0.1.models.example',
    'http://localhost.models.example',
    'http://10.0.0.1',
  ],
  ...['https://models.example/a\u0000', 'https://models.example/\ud800'],
  ...['https://name:word@models.example', 'https://name@models.example', 'https://models.example/v1?key=x'],
  ...[
    'https://169.254.169.254/latest',
    'http://169.254.169.254',
    'https://[fe80::1]',
    'https://[::ffff:169.254.169.254]',
  ],
  ...[
    'https://0.0.0.0',
    'https://metadata.google.internal',
    'https://2852039166',
    `https://a.example/${'x'.repeat(2_000)}`,
  ],
];

export const MODEL = {
  provider: 'openai-compatible',
  model: 'm',
  baseUrl: 'https://models.example/v1',
  settings: { temperature: 1, maxOutputTokens: 10, reasoningEffort: 'low' },
  credential: { apiKey: 'k' },
};

/** Also what a seed refuses. */
export const badModels: readonly Json[] = [
  { provider: 'nobody' },
  { provider: 'fixture' },
  { baseUrl: undefined },
  { model: '' },
  { model: 'x'.repeat(201) },
  ...badAddresses.map((baseUrl) => ({ baseUrl })),
  ...badApiKeys.map((apiKey) => ({ credential: { apiKey } })),
  ...[-0.1, 2.1].map((temperature) => ({ settings: { temperature } })),
  ...[0, 1.5, 10_000_001].map((maxOutputTokens) => ({ settings: { maxOutputTokens } })),
  ...['', 'x'.repeat(65)].map((reasoningEffort) => ({ settings: { reasoningEffort } })),
];

const saved: BodyRow = {
  whole: { requestId: 'rq', ...MODEL },
  required: ['provider', 'model', 'credential.apiKey'],
  wrong: [{ requestId: '' }, { requestId: LONG }, ...badModels],
};

const PRICE = { provider: 'openai', model: 'm', inputUsdPerMillion: 1, outputUsdPerMillion: 2 };
const wrongPrice = (change: Json): Json => ({ prices: [{ ...PRICE, ...change }] });

/** Of the model settings; see routes.ts. */
export const MODEL_ROUTES: Readonly<Record<string, RouteRow>> = {
  'GET /v1/tenant/model': { realm: 'tenant' },
  'PUT /v1/tenant/model': { realm: 'tenant', bodies: [saved] },
  'PUT /v1/tenant/model/selection': {
    realm: 'tenant',
    bodies: [
      {
        whole: { requestId: 'rq', provider: 'openai', model: 'm' },
        required: ['provider', 'model'],
        wrong: [{ requestId: '' }, { provider: 'nobody' }, { model: '' }, { model: 'x'.repeat(201) }],
      },
    ],
  },
  'GET /v1/tenant/model/catalog': { realm: 'tenant' },
  'GET /v1/tenant/model/prices': { realm: 'tenant' },
  'PUT /v1/tenant/model/prices': {
    realm: 'tenant',
    bodies: [
      {
        whole: { requestId: 'rq', prices: [PRICE] },
        required: ['prices'],
        wrong: [
          { requestId: '' },
          { prices: [PRICE, PRICE] },
          { prices: Array.from({ length: 201 }, (_, n) => ({ ...PRICE, model: `m${n}` })) },
          ...[{ provider: 'fixture' }, { model: '' }, { contextWindow: 0 }, { perImage: 1 }].map(wrongPrice),
          ...[-1, '1', 1_000_001].map((inputUsdPerMillion) => wrongPrice({ inputUsdPerMillion })),
          ...[-1, null].map((cacheReadUsdPerMillion) => wrongPrice({ cacheReadUsdPerMillion })),
        ],
      },
    ],
  },
  'GET /v1/tenant/model/credentials/{provider}': { realm: 'tenant', params: provider },
  'PUT /v1/tenant/model/credentials/{provider}': {
    realm: 'tenant',
    params: provider,
    bodies: [
      {
        whole: { requestId: 'rq', apiKey: 'k' },
        required: ['apiKey'],
        wrong: [{ requestId: '' }, { requestId: LONG }, ...badApiKeys.map((apiKey) => ({ apiKey }))],
      },
    ],
  },
  'DELETE /v1/tenant/model/credentials/{provider}': { realm: 'tenant', params: provider },
};
