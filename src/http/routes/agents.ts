import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import { actorOf } from '../../auth/caller.ts';
import type { Caller } from '../../auth/caller.ts';
import { archiveAgent, saveAgent } from '../../commands/agent/save-agent.ts';
import type { AgentDeps } from '../../commands/agent/save-agent.ts';
import { readAgentVersion } from '../../commands/agent/read-agent-version.ts';
import type { AgentView } from '../../projections/agents/views.ts';
import type { AgentQueries } from '../../projections/agents/queries.ts';
import type { EgressPolicy } from '../../lib/egress.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import { requireCallableServers } from '../callable.ts';
import { operations } from '../described.ts';
import type { Freshness } from '../freshness.ts';
import { callerOf } from '../gate.ts';
import { ListRequest } from '../list-request.ts';
import { accepted, notFound, requireAgent, requireAgentsOf } from '../problem.ts';
import * as agentWire from '../wire/agents.ts';
import * as wire from '../wire/schemas.ts';

const docs = operations('Agents', {
  saveAgent: ['Save an agent definition', 'A new version whenever it differs from the last.'],
  archiveAgent: ['Archive an agent', 'No new session; old ones continue.'],
  listAgents: ['List agents, by id'],
  getAgent: ['One agent, with its manifest'],
  listAgentVersions: ['The versions of an agent, oldest first'],
  getAgentVersion: ['One version of an agent, with the manifest that it had'],
});

export interface AgentRouteDeps extends AgentDeps {
  readonly queries: AgentQueries;
  /** What addresses of MCP servers are checked against. */
  readonly egress: EgressPolicy;
  readonly freshness: Freshness;
}

/** Agent definitions. */
export function agentRoutes(deps: AgentRouteDeps): FastifyPluginAsyncZod {
  const { freshness } = deps;
  return async (app) => {
    const write = { rules: { access: ACCESS.writeAgents } };
    app.put(
      '/v1/agents/:agentId',
      {
        config: write,
        schema: {
          ...docs.saveAgent,
          params: agentWire.agentPath,
          body: agentWire.saveAgentBody,
          response: { 200: agentWire.agentSaved },
        },
      },
      async (request) => {
        const caller = callerOf(request);
        const { manifest, implementationVersion = null, requestId = request.id } = request.body;
        const ref = agentRef(caller, request.params.agentId);
        requireAgentsOf(caller, manifest);
        requireCallableServers(deps.egress, manifest);
        const input = { ref, manifest, implementationVersion, actor: actorOf(caller), causation: requestId };
        const outcome = accepted(await saveAgent(deps, input));
        await freshness('agents', ref, outcome.position);
        return outcome.reply;
      },
    );
    app.delete(
      '/v1/agents/:agentId',
      {
        config: write,
        schema: { ...docs.archiveAgent, params: agentWire.agentPath, response: { 200: agentWire.agentArchived } },
      },
      async (request) => {
        const caller = callerOf(request);
        const { agentId } = request.params;
        const ref = agentRef(caller, agentId);
        const outcome = accepted(await archiveAgent(deps, { ref, actor: actorOf(caller), causation: request.id }));
        await freshness('agents', ref, outcome.position);
        return { agentId, archived: true as const };
      },
    );
    await app.register(readRoutes(deps));
  };
}

function readRoutes({ queries, agents: definitions }: AgentRouteDeps): FastifyPluginAsyncZod {
  return async (app) => {
    const read = { rules: { access: ACCESS.readAgents } };
    app.get(
      '/v1/agents',
      {
        config: read,
        schema: { ...docs.listAgents, querystring: wire.listQuery, response: { 200: agentWire.agentList } },
      },
      async (request) => {
        const { tenantId, agents } = callerOf(request);
        const list = new ListRequest(`GET /v1/agents ${tenantId}`, request.query, 1);
        const found = await queries.list(tenantId, { limit: list.wanted, after: list.after?.[0] ?? null, agents });
        const { entries, nextCursor } = list.page(found, ({ agentId }) => [agentId]);
        return { agents: entries.map(summaryOf), nextCursor };
      },
    );
    app.get(
      '/v1/agents/:agentId',
      { config: read, schema: { ...docs.getAgent, params: agentWire.agentPath, response: { 200: agentWire.agent } } },
      async (request) => {
        const ref = agentRef(callerOf(request), request.params.agentId);
        const agent = await queries.get(ref.tenant, ref.id);
        if (agent === null) throw notFound('agent');
        return { ...summaryOf(agent), manifest: agent.manifest };
      },
    );
    app.get(
      '/v1/agents/:agentId/versions',
      {
        config: read,
        schema: { ...docs.listAgentVersions, params: agentWire.agentPath, response: { 200: agentWire.agentVersions } },
      },
      async (request) => {
        const ref = agentRef(callerOf(request), request.params.agentId);
        const versions = await queries.versions(ref.tenant, ref.id);
        if (versions.length === 0) throw notFound('agent');
        return { versions: [...versions] };
      },
    );
    app.get(
      '/v1/agents/:agentId/versions/:version',
      {
        config: read,
        schema: {
          ...docs.getAgentVersion,
          params: agentWire.agentVersionPath,
          response: { 200: agentWire.savedAgentVersion },
        },
      },
      async (request) => {
        const { agentId, version } = request.params;
        const found = await readAgentVersion(definitions.store, agentRef(callerOf(request), agentId), version);
        if (found === null) throw notFound('version of the agent');
        return found;
      },
    );
    await Promise.resolve();
  };
}

/** @throws ProblemError not_granted */
function agentRef(caller: Caller, id: string): AggregateRef {
  requireAgent(caller, id);
  return { tenant: caller.tenantId, kind: 'agent', id };
}

/** Members in the order in which they are documented: the database keeps none. */
function summaryOf(view: AgentView): Omit<AgentView, 'manifest'> {
  const { agentId, version, manifestHash, implementationVersion, name, description, archived, createdAt, updatedAt } =
    view;
  return { agentId, manifestHash, version, implementationVersion, name, description, archived, createdAt, updatedAt };
}
