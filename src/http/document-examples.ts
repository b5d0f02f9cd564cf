const manifest = {
  name: 'Support',
  instructions: 'You help customers of a shop. Be brief.',
  tools: [
    {
      name: 'refund',
      description: 'Pays an order back.',
      inputSchema: { type: 'object', properties: { orderId: { type: 'string' } }, required: ['orderId'] },
      approval: 'always',
    },
  ],
};
const requestId = 'request-1';
const idempotencyKey = 'key-1';

/** A body for each operation that takes one, by operationId; the linter holds them against the schemas. */
export const EXAMPLES: Readonly<Record<string, unknown>> = {
  createTenant: { name: 'Trial', requestId, idempotencyKey },
  seedTenant: { requestId, fixtureModel: true },
  saveKey: { requestId, role: 'application' },
  saveIssuer: {
    issuer: 'https://login.example.com',
    audience: 'agents',
    jwksUrl: 'https://login.example.com/keys.json',
    allowedScopes: ['agents:read', 'sessions:own'],
  },
  saveModel: { provider: 'anthropic', model: 'claude-sonnet-4-5', credential: { apiKey: 'sk-ant-0123456789' } },
  selectModel: { provider: 'anthropic', model: 'claude-sonnet-4-5' },
  saveModelPrices: {
    prices: [{ provider: 'openai-compatible', model: 'llama3.3', inputUsdPerMillion: 0.2, outputUsdPerMillion: 0.6 }],
  },
  saveModelCredential: { apiKey: 'sk-ant-0123456789' },
  saveBudgets: { budgets: [{ scope: 'tenant', period: 'month', limitUsd: 100 }] },
  saveExecutors: { executors: [{ agentId: 'support', token: 'a-token-of-16-characters-or-more' }] },
  claimActions: { requestId, limit: 10 },
  claimAction: { requestId },
  extendAction: { requestId, claimId: 'cl_01K9Q4', generation: 1 },
  saveAgent: { manifest },
  saveArtifactLimits: { limits: { totalBytes: 10_737_418_240 } },
  createArtifactLink: { version: 1, expiresIn: 300 },
  createVault: { requestId, idempotencyKey, name: 'Ann', subject: 'ann@example.com' },
  saveCredential: {
    ...{ requestId, idempotencyKey, name: 'Tickets' },
    auth: { type: 'bearer', url: 'https://tickets.example.com/mcp', token: 'a-token-of-the-server' },
  },
  rotateCredential: {
    ...{ requestId, idempotencyKey },
    auth: { type: 'bearer', url: 'https://tickets.example.com/mcp', token: 'the-next-token' },
  },
  authorizeCredential: { redirectUri: 'https://app.example.com/signed-in' },
  completeCredential: { code: 'SplxlOBeZQQYbYS6WxSbIA', state: 'af0ifjsldkj', iss: 'https://login.example.com' },
  openSandbox: { kind: 'virtual', labels: { team: 'support' }, spec: { python: true } },
  openSession: { agentId: 'support', subject: 'ann@example.com', labels: { channel: 'mail' } },
  forkSession: { requestId, idempotencyKey, id: 'second' },
  sendCommand: { type: 'message', requestId, idempotencyKey, content: 'Where is my order?' },
};
