import type { ArtifactDeps } from '../commands/artifact/deps.ts';
import type { McpServerManifest } from '../domain/agent/mcp-servers.ts';
import { MCP_TIMEOUT_SECONDS } from '../domain/agent/mcp-servers.ts';
import { withoutNulls } from '../domain/kernel/optional.ts';
import type { OpenSession, SessionState } from '../domain/session/state.ts';
import { byAgent, manifestOf } from '../domain/turn/agents.ts';
import { mcpAnswerOf } from '../domain/turn/mcp-answers.ts';
import type { OpenMcpCall } from '../domain/turn/mcp-calls.ts';
import type { McpTool } from '../domain/turn/mcp-events.ts';
import { askInMcpCall, settleMcp, settleMcpTools } from '../domain/turn/mcp-process.ts';
import type { ActiveTurn } from '../domain/turn/state.ts';
import type { ListedServer, McpListed } from '../domain/turn/steps/mcp-listing.ts';
import type { McpCallEnd, McpQuestion as Question } from '../domain/turn/steps/mcp-settling.ts';
import type { Thread } from '../domain/turn/thread.ts';
import type {
  McpAnswer,
  McpDriver,
  McpListing,
  McpOutcome,
  McpProgress,
  McpQuestion,
  McpServer,
} from '../drivers/mcp/port.ts';
import { firstOf } from '../lib/abort.ts';
import { backoffMs, delay } from '../lib/backoff.ts';
import { UnavailableError } from '../lib/unavailable.ts';
import { Wake } from '../lib/wake.ts';
import type { Previews } from '../streams/previews.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import type { Calls } from './calls.ts';
import { handBack, isOurs, untilLogged, whileWanted } from './effect.ts';
import type { EffectDeps } from './effect.ts';
import { mcpResult } from './mcp-results.ts';
import { turnStep } from './turn-step.ts';

export interface McpCallDeps {
  readonly driver: McpDriver;
  /** Where files and long results are stored. */
  readonly artifacts: ArtifactDeps;
}

/** What a worker gives to all that it does, and where what a tool tells meanwhile goes. */
type McpSteps = EffectDeps & { readonly previews: Pick<Previews, 'isAsked' | 'send'> };

/** A thread that has to know the tools of its servers. */
interface WantedListing {
  readonly ref: AggregateRef;
  readonly session: OpenSession;
  readonly turn: ActiveTurn;
  readonly threadId: string;
  readonly thread: Thread;
}

/** A call that is to be made, and the fold that requires it. */
interface WantedMcpCall extends Omit<WantedListing, 'threadId'> {
  readonly call: OpenMcpCall;
}

/** For one server to list its tools, retries of the driver included, ms. */
const LISTING_MS = 30_000;
/** Further attempts at a call that may be repeated and broke off, or whose declaration changes all the time. */
const REPEATS_MAX = 3;
const RETRY = { baseMs: 200, capMs: 2_000 };

/**
 * Calls MCP servers for turns. What an attempt came to is in the log before anything follows from it; whether an attempt
 * that was under way at a crash is made again is the log's decision, by what the server says about its tool.
 */
export class McpCaller {
  readonly #steps: McpSteps;
  readonly #deps: McpCallDeps;
  /** Aborted when a stopping worker has waited long enough. */
  readonly #givingUp: AbortSignal;

  constructor(steps: McpSteps, deps: McpCallDeps, givingUp: AbortSignal) {
    this.#steps = steps;
    this.#deps = deps;
    this.#givingUp = givingUp;
  }

  /** Starts what the threads of a turn that is ours want of their servers, unless it is running already. */
  start(calls: Calls, wanted: Pick<WantedListing, 'ref' | 'session' | 'turn'>): void {
    for (const [threadId, thread] of Object.entries(wanted.turn.threads)) {
      const { listing, calls: open } = thread.mcp;
      // Another turn's threads have the same ids, and what they want may be of other servers.
      const key = `tools of ${wanted.turn.turnId} ${threadId}`;
      if (listing) calls.start(key, async () => await this.#list({ ...wanted, threadId, thread }));
      for (const call of open) {
        if (call.status !== 'called') continue;
        calls.start(call.effectId, async () => await this.#call({ ...wanted, thread, call }));
      }
    }
  }

  /** Lists the tools of a thread's servers, all at the same time, and records them. */
  async #list(wanted: WantedListing): Promise<void> {
    const { ref, turn, threadId } = wanted;
    const isWanted = (state: SessionState): boolean => turnOf(state)?.threads[threadId]?.mcp.listing === true;
    await this.#run(
      { ref, turn, isWanted },
      async (signal) => {
        const servers = serversOf(wanted);
        return await Promise.all(servers.map(async (server) => await this.#listOne(wanted, server, signal)));
      },
      async (listed) => {
        await turnStep(this.#steps, { ref, causation: turn.turnId }, (draft, context) => {
          if (isOurs(draft.state, turn) && isWanted(draft.state)) settleMcpTools(draft, { threadId, listed }, context);
        });
      },
    );
  }

  /** Makes one attempt at a call and records how it ended, unless the turn no longer needs it. */
  async #call(wanted: WantedMcpCall): Promise<void> {
    const { ref, turn, call } = wanted;
    const { effectId } = call;
    const isWanted = (state: SessionState): boolean => openCall(state, effectId) !== null;
    await this.#run(
      { ref, turn, isWanted },
      async (signal) => await this.#attempt(wanted, signal),
      async (end) => {
        await turnStep(this.#steps, { ref, causation: effectId }, (draft, context) => {
          if (isOurs(draft.state, turn)) settleMcp(draft, { effectId, end }, context);
        });
      },
    );
  }

  /** Unavailable dependencies are waited for: they are needed before anything is sent, or after the answer. */
  async #run<T>(
    wanted: Parameters<typeof whileWanted>[1],
    work: (signal: AbortSignal) => Promise<T>,
    record: (result: T) => Promise<void>,
  ): Promise<void> {
    const { ref } = wanted;
    await whileWanted(this.#steps, wanted, async ({ unwanted }) => {
      const ended = firstOf([unwanted, this.#givingUp]);
      try {
        const result = await work(ended.signal).catch((error: unknown) => {
          if (ended.signal.aborted) return null;
          throw error;
        });
        if (result !== null) {
          await untilLogged(this.#steps, { ref, givingUp: this.#givingUp }, async () => await record(result));
        } else if (!unwanted.aborted) await handBack(this.#steps, ref);
      } finally {
        ended.release();
      }
    });
  }

  async #listOne(wanted: WantedListing, server: McpServerManifest, signal: AbortSignal): Promise<ListedServer> {
    const listing = await this.#listing(wanted, server, signal);
    return { server: server.name, listed: listedOf(server.name, listing) };
  }

  async #listing(
    wanted: Pick<WantedListing, 'ref' | 'session' | 'turn'>,
    server: McpServerManifest,
    signal: AbortSignal,
  ): Promise<McpListing> {
    const asked = addressOf(wanted, server);
    return await this.#whileAway(wanted.ref, signal, async () => {
      const deadline = this.#steps.clock() + LISTING_MS;
      return await this.#deps.driver.list(asked, { signal, deadline });
    });
  }

  async #attempt(wanted: WantedMcpCall, signal: AbortSignal): Promise<McpCallEnd> {
    const { call } = wanted;
    const server = serversOf(wanted).find(({ name }) => name === call.server);
    if (server === undefined) return failed('tool_unknown', `This agent has no MCP server ${call.server}.`);
    const deadline = this.#steps.clock() + (server.timeoutSeconds ?? MCP_TIMEOUT_SECONDS) * 1000;
    // Without an approval nothing depends on what the server said when it was listed.
    let digest = (server.approval ?? 'never') === 'never' ? null : call.digest;
    for (let repeats = 0; ; repeats++) {
      const made = { server, deadline, digest };
      const outcome = await this.#whileAway(wanted.ref, signal, async () => await this.#send(wanted, made, signal));
      if (outcome.kind !== 'failed' || repeats >= REPEATS_MAX) return await this.#endOf(wanted, outcome, signal);
      const next = await this.#afterFailure(wanted, { server, outcome }, signal);
      if (next.kind !== 'again') return next;
      if (next.digest !== null) digest = next.digest;
      else await delay(backoffMs(repeats, RETRY), signal);
    }
  }

  /** Whether an attempt that has failed is followed by another one, and with which declaration of the tool. */
  async #afterFailure(
    wanted: WantedMcpCall,
    { server, outcome }: { server: McpServerManifest; outcome: Extract<McpOutcome, { kind: 'failed' }> },
    signal: AbortSignal,
  ): Promise<McpCallEnd | { readonly kind: 'again'; readonly digest: string | null }> {
    const { code, mayHaveHappened } = outcome;
    if (code === 'lost' && (wanted.call.repeatable || !mayHaveHappened)) return { kind: 'again', digest: null };
    if (code !== 'changed') return await this.#endOf(wanted, outcome, signal);
    const now = await this.#declared(wanted, server, signal);
    if (now.kind !== 'tool') return now;
    const { tool } = now;
    // Gone, or not to be called before a person has seen what it is now.
    if (tool === null || server.approval === 'always' || !tool.readOnly) return { kind: 'changed', tool };
    return { kind: 'again', digest: tool.digest };
  }

  async #send(
    wanted: WantedMcpCall,
    { server, deadline, digest }: { server: McpServerManifest; deadline: number; digest: string | null },
    signal: AbortSignal,
  ): Promise<McpOutcome> {
    const { call } = wanted;
    const { tool, effectId, resume } = call;
    const resumed = resume === null ? {} : { resume: { state: resume.state, answer: toServer(resume.value) } };
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- it fits the tool's schema, which is one of an object
    const input = (call.input ?? {}) as McpServer['headers'];
    return await this.#deps.driver.call(
      addressOf(wanted, server),
      { tool, input, effectId, deadline, digest, ...resumed },
      {
        signal,
        onProgress: (progress) => this.#show(wanted, progress, signal),
        onQuestion: async (question, ended) => await this.#ask(wanted, question, ended),
      },
    );
  }

  /** To readers that ask for previews, while the call is this worker's. */
  #show({ ref, turn: { turnId }, thread, call }: WantedMcpCall, told: McpProgress, signal: AbortSignal): void {
    const { previews } = this.#steps;
    if (signal.aborted || !previews.isAsked(ref)) return;
    const { callId, name: toolName } = call;
    const progress = withoutNulls({ ...told });
    previews.send(ref, JSON.stringify({ turnId, callId, toolName, progress, ...byAgent(thread) }));
  }

  /** What the server says about the tool now. */
  async #declared(
    wanted: WantedMcpCall,
    server: McpServerManifest,
    signal: AbortSignal,
  ): Promise<McpCallEnd | { readonly kind: 'tool'; readonly tool: McpTool | null }> {
    const listed = listedOf(server.name, await this.#listing(wanted, server, signal));
    if (listed.kind !== 'tools') return listed;
    return { kind: 'tool', tool: listed.tools.find(({ tool }) => tool === wanted.call.tool) ?? null };
  }

  async #endOf(wanted: WantedMcpCall, outcome: McpOutcome, signal: AbortSignal): Promise<McpCallEnd> {
    switch (outcome.kind) {
      case 'result': {
        const { ref, session, call } = wanted;
        const { tool, effectId } = call;
        const whileAway = async <T>(work: () => Promise<T>): Promise<T> => await this.#whileAway(ref, signal, work);
        const of = { ref, session, tool, effectId, actor: `worker:${this.#steps.workerId}`, signal, whileAway };
        return { kind: 'result', ...(await mcpResult(this.#deps.artifacts, of, outcome)) };
      }
      case 'input_required':
        return { kind: 'question', question: questionOf(outcome.question), state: outcome.state };
      case 'needs_auth':
        return outcome;
      case 'unavailable':
        return { kind: 'unavailable', reason: outcome.reason };
      case 'failed':
        if (outcome.code === 'lost' && outcome.mayHaveHappened && !wanted.call.repeatable) return { kind: 'in_doubt' };
        return failed(outcome.code === 'timeout' ? 'tool_timeout' : `mcp_${outcome.code}`, outcome.message);
    }
  }

  /** A server of an older revision asks while its call is open: the question is in the log, and so is its answer. */
  async #ask({ ref, call }: WantedMcpCall, question: McpQuestion, signal: AbortSignal): Promise<McpAnswer> {
    const { effectId } = call;
    await turnStep(this.#steps, { ref, causation: effectId }, (draft, context) => {
      askInMcpCall(draft, { effectId, question: questionOf(question) }, context);
    });
    const wake = new Wake();
    const raise = (): void => wake.raise();
    const unwatch = this.#steps.sessions.watch(ref, raise);
    signal.addEventListener('abort', raise);
    try {
      while (!signal.aborted) {
        const { state } = await this.#steps.sessions.refresh(ref);
        const open = openCall(state, effectId);
        if (open === null) break;
        if (open.answer !== null)
          return question.mode === 'url' ? withoutContent(open.answer.value) : toServer(open.answer.value);
        await wake.wait(null);
      }
      return { action: 'cancel' };
    } finally {
      signal.removeEventListener('abort', raise);
      unwatch();
    }
  }

  /** @throws the signal's reason */
  async #whileAway<T>(ref: AggregateRef, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    for (let failures = 0; ; failures++) {
      signal.throwIfAborted();
      try {
        return await work();
      } catch (error) {
        signal.throwIfAborted();
        // Whatever it is that is away, nothing was sent to the server, or its answer is already here.
        if (!(error instanceof UnavailableError)) throw error;
        this.#steps.logger.warn({ err: error, session: ref.id }, 'a call of an MCP server waits for what it needs');
        await delay(backoffMs(failures, RETRY), signal);
      }
    }
  }
}

function turnOf(state: SessionState): ActiveTurn | null {
  return state.status === 'open' ? state.turn : null;
}

function openCall(state: SessionState, effectId: string): OpenMcpCall | null {
  const calls = Object.values(turnOf(state)?.threads ?? {}).flatMap(({ mcp }) => mcp.calls);
  return calls.find((call) => call.effectId === effectId && call.status === 'called') ?? null;
}

function serversOf({
  session,
  turn,
  thread,
}: Pick<WantedListing, 'session' | 'turn' | 'thread'>): readonly McpServerManifest[] {
  return manifestOf(session, turn, thread).mcpServers ?? [];
}

function addressOf(
  { ref, session, turn }: Pick<WantedListing, 'ref' | 'session' | 'turn'>,
  { name, url, headers = {}, tools }: McpServerManifest,
): McpServer {
  const { vaultIds = [] } = session;
  const where = { tenant: ref.tenant, sessionId: ref.id, turnId: turn.turnId, vaultIds };
  return { ...where, name, url, headers, only: tools ?? null };
}

function listedOf(server: string, listing: McpListing): McpListed {
  if (listing.kind === 'needs_auth') return listing;
  if (listing.kind === 'unavailable') return { kind: 'unavailable', reason: listing.reason };
  const { tools, refused, refusedCount } = listing;
  const named = refused.map(({ tool, reason }) => `${tool}: ${reason}`).join('; ');
  const omitted = refusedCount === 0 ? null : `${refusedCount} of its tools cannot be offered: ${named}`;
  return {
    kind: 'tools',
    omitted,
    tools: tools.map(({ name, tool, description, inputSchema, readOnly, idempotent, digest }) => ({
      ...{ name, server, tool, digest, repeatable: readOnly || idempotent, readOnly, description },
      inputSchema: { ...inputSchema },
    })),
  };
}

function questionOf(question: McpQuestion): Question {
  const { message: prompt } = question;
  return question.mode === 'form'
    ? { prompt, schema: question.schema, url: null }
    : { prompt, schema: null, url: question.url };
}

/** Checked against the question's schema when it was given. */
function toServer(value: unknown): McpAnswer {
  const answer = mcpAnswerOf(value) ?? { action: 'accept' };
  return answer as McpAnswer;
}

/** A person who was sent to an address has done there what was asked; nothing else is passed on. */
function withoutContent(value: unknown): McpAnswer {
  return { action: toServer(value).action };
}

function failed(code: string, message: string): McpCallEnd {
  return { kind: 'result', outcome: { kind: 'failed', code, message } };
}
