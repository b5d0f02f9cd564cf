/** Operations with a `cursor`, and whether it is a place in the history of a session or in a list. */
export const CURSORS: Readonly<Record<string, 'history' | 'list'>> = {
  'GET /v1/admin/tenants': 'list',
  'GET /v1/tenant/audit': 'list',
  'GET /v1/agents': 'list',
  'GET /v1/interactions': 'list',
  'GET /v1/artifacts': 'list',
  'GET /v1/sessions': 'list',
  'GET /v1/sessions/{sessionId}/items': 'history',
  'GET /v1/sessions/{sessionId}/events': 'history',
  'GET /v1/sessions/{sessionId}/calls/model': 'list',
  'GET /v1/tenant/usage': 'list',
};
