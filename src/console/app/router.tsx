import { createRootRoute, createRoute, createRouter, lazyRouteComponent, redirect } from '@tanstack/react-router';
import { Shell } from './shell.tsx';
import type {
  AgentSearch,
  SessionSearch,
  SessionsSearch,
  SignedInSearch,
  TenantSearch,
  UsageSearch,
} from './searches.ts';
import { NotFound, RouteError } from './pages/route-error.tsx';

const root = createRootRoute({ component: Shell, errorComponent: RouteError, notFoundComponent: NotFound });
const parent = () => root;

/** A member of the query that is a text, or absent. */
function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** A member of the query that counts something, or absent. */
function whole(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isInteger(value) && value > 0 ? value : undefined;
}

/** As `text`, of a query that the router did not write: it reads digits alone as a number. */
function words(value: unknown): string | undefined {
  return typeof value === 'number' ? String(value) : text(value);
}

const home = createRoute({
  getParentRoute: parent,
  path: '/',
  beforeLoad: () => {
    // The router's own way of going elsewhere.
    // oxlint-disable-next-line typescript/only-throw-error
    throw redirect({ to: '/sessions' });
  },
});
const sessions = createRoute({
  getParentRoute: parent,
  path: '/sessions',
  validateSearch: (search: Record<string, unknown>): SessionsSearch => ({
    status: text(search['status']),
    agent: text(search['agent']),
    label: text(search['label']),
    subject: text(search['subject']),
  }),
  component: lazyRouteComponent(async () => await import('./pages/sessions/sessions.tsx'), 'SessionsPage'),
});
const session = createRoute({
  getParentRoute: parent,
  path: '/sessions/$sessionId',
  validateSearch: (search: Record<string, unknown>): SessionSearch => ({
    view: text(search['view']),
    turn: text(search['turn']),
    at: text(search['at']),
  }),
  component: lazyRouteComponent(async () => await import('./pages/session/session.tsx'), 'SessionPage'),
});
const inbox = createRoute({
  getParentRoute: parent,
  path: '/inbox',
  component: lazyRouteComponent(async () => await import('./pages/inbox/inbox.tsx'), 'InboxPage'),
});
const agents = createRoute({
  getParentRoute: parent,
  path: '/agents',
  component: lazyRouteComponent(async () => await import('./pages/agents/agents.tsx'), 'AgentsPage'),
});
const agent = createRoute({
  getParentRoute: parent,
  path: '/agents/$agentId',
  validateSearch: (search: Record<string, unknown>): AgentSearch => ({
    view: text(search['view']),
    from: whole(search['from']),
    to: whole(search['to']),
  }),
  component: lazyRouteComponent(async () => await import('./pages/agents/agent.tsx'), 'AgentPage'),
});
const usage = createRoute({
  getParentRoute: parent,
  path: '/usage',
  validateSearch: (search: Record<string, unknown>): UsageSearch => ({
    days: whole(search['days']),
    measure: text(search['measure']),
  }),
  component: lazyRouteComponent(async () => await import('./pages/usage/usage.tsx'), 'UsagePage'),
});
const tenant = createRoute({
  getParentRoute: parent,
  path: '/tenant',
  validateSearch: (search: Record<string, unknown>): TenantSearch => ({
    view: text(search['view']),
    vault: text(search['vault']),
  }),
  component: lazyRouteComponent(async () => await import('./pages/tenant/tenant.tsx'), 'TenantPage'),
});
const signedIn = createRoute({
  getParentRoute: parent,
  path: '/signed-in',
  validateSearch: (search: Record<string, unknown>): SignedInSearch => ({
    code: words(search['code']),
    state: words(search['state']),
    iss: words(search['iss']),
    error: words(search['error']),
  }),
  component: lazyRouteComponent(async () => await import('./pages/tenant/signed-in.tsx'), 'SignedInPage'),
});
const host = createRoute({
  getParentRoute: parent,
  path: '/host',
  component: lazyRouteComponent(async () => await import('./pages/host/host.tsx'), 'HostPage'),
});

export const router = createRouter({
  routeTree: root.addChildren([home, sessions, session, inbox, agents, agent, usage, tenant, signedIn, host]),
  defaultPreload: 'intent',
  scrollRestoration: true,
});

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router;
  }
}
