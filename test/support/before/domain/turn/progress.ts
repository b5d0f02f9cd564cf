import type { Outcome } from '#src/domain/action/events.ts';
import type { HookPoint } from '#src/domain/agent/manifest.ts';
import { DEFAULT_MAX_STEPS } from '#src/domain/agent/manifest.ts';
import { deriveId } from '#src/domain/kernel/ids.ts';
import { valueProblem } from '#src/domain/kernel/json-schema.ts';
import { jsonValue } from '#src/domain/kernel/schemas.ts';
import { toMs } from '#src/domain/kernel/time.ts';
import { agentIdOf, byAgent, manifestOf, modelOf, nextId, running } from './draft.ts';
import type { SessionDraft, TurnContext } from './draft.ts';
import { failThread } from './end.ts';
import type { ActiveTurn } from './state.ts';
import { hookName, wantsModel } from './thread.ts';
import type { Thread } from './thread.ts';
import { declaredTools, offerHook } from './tools.ts';

/** The id under which a turn's own cost limit shows among budgets. */
export const TURN_BUDGET = 'limits.maxCostUsd';

/** Times that a model is asked again for an output that fits its schema. */
const REPAIRS_MAX = 1;

/** Takes every thread as far as it goes without waiting for anybody; a thread's end may take the one above it on. */
export function progress(draft: SessionDraft, context: TurnContext): void {
  for (let before = -1; before < draft.events.length;) {
    before = draft.events.length;
    for (const id of Object.keys(running(draft)?.turn.threads ?? {})) advanceThread(draft, id, context);
  }
}

function advanceThread(draft: SessionDraft, threadId: string, context: TurnContext): void {
  const now = running(draft);
  const thread = now?.turn.threads[threadId];
  if (now === null || thread === undefined || thread.pending !== null || !wantsModel(thread)) return;
  if (thread.phase !== 'tools') {
    if (thread.phase === 'begin' && hookDue(draft, threadId, { at: 'before', scope: 'turn' })) return;
    beginStep(draft, threadId, context);
    return;
  }
  if (hookDue(draft, threadId, { at: 'after', scope: 'step' })) return;
  if (thread.calledTools && !thread.stopped) beginStep(draft, threadId, context);
  else finish(draft, threadId);
}

/** Offers a hook that the thread's agent has at this point and that is not behind; whether the thread waits for it now. */
function hookDue(draft: SessionDraft, threadId: string, hook: HookPoint): boolean {
  const now = running(draft);
  const thread = now?.turn.threads[threadId];
  if (now === null || thread === undefined || thread.passed.includes(hookName(hook))) return false;
  const { hooks = [] } = manifestOf(now.session, now.turn, thread);
  if (!hooks.some((one) => hookName(one) === hookName(hook))) return false;
  offerHook(draft, { thread, hook, input: hookInput(draft, thread, hook) });
  return true;
}

/** What an executor is told at a hook; nothing that it could read from the history is repeated but the newest step. */
function hookInput(draft: SessionDraft, thread: Thread, hook: HookPoint): Record<string, unknown> {
  const now = running(draft);
  if (now === null) return {};
  const { session, turn } = now;
  const { step, lastText: text } = thread;
  switch (hookName(hook)) {
    case 'before-turn': {
      const messages = (thread.conversation ?? session.conversation).messages;
      const asked = messages.findLast((message) => message.role === 'user');
      return { input: asked?.text ?? '' };
    }
    case 'before-step':
      return { step, tools: declaredTools(manifestOf(session, turn, thread), thread).map(({ name }) => name) };
    case 'after-step': {
      const messages = (thread.conversation ?? session.conversation).messages;
      const said = messages.findLastIndex((message) => message.role === 'assistant');
      const last = messages[said];
      const toolCalls = last?.role === 'assistant' ? last.toolCalls : [];
      return { step: step - 1, text, toolCalls };
    }
    default:
      return { output: outputOf(draft, thread) };
  }
}

function beginStep(draft: SessionDraft, threadId: string, context: TurnContext): void {
  const now = running(draft);
  const thread = now?.turn.threads[threadId];
  if (now === null || thread === undefined) return;
  const { session, turn } = now;
  const manifest = manifestOf(session, turn, thread);
  const maxSteps = thread.agent === null ? turn.maxSteps : (manifest.limits?.maxSteps ?? DEFAULT_MAX_STEPS);
  if (thread.step >= maxSteps) {
    const message = `The turn reached its limit of ${maxSteps} model steps.`;
    failThread(draft, threadId, { code: 'max_steps_exceeded', message });
    return;
  }
  if (thread.retryAt !== null && context.nowMs < toMs(thread.retryAt)) return;
  if (!thread.overflow && hookDue(draft, threadId, { at: 'before', scope: 'step' })) return;
  requestModel(draft, threadId, context);
}

function requestModel(draft: SessionDraft, threadId: string, context: TurnContext): void {
  const now = running(draft);
  const thread = now?.turn.threads[threadId];
  if (now === null || thread === undefined) return;
  const { session, turn } = now;
  const model = modelOf(session, turn, thread);
  if (model === null) {
    const message = 'Neither the agent nor the tenant names a model. Set "model" in the manifest.';
    failThread(draft, threadId, { code: 'model_not_configured', message });
    return;
  }
  if (wouldPassLimit(turn, thread)) {
    const spent = `${turn.usage.costUsd} USD are spent`;
    const why = `The next model call would pass the turn's limit of ${turn.maxCostUsd ?? 0} USD; ${spent}.`;
    askToRaise(draft, { thread, budgetId: TURN_BUDGET, why });
    return;
  }
  if (!holds(draft, context)) return;
  const n = turn.calls + 1;
  draft.add({
    type: 'model.requested',
    data: {
      turnId: turn.turnId,
      effectId: deriveId('ef', turn.turnId, n),
      callId: deriveId('mc', turn.turnId, n),
      step: thread.step,
      attempt: thread.attempts,
      provider: model.provider,
      model: model.model,
      ...(thread.overflow ? { purpose: 'summary' as const } : {}),
      ...byAgent(thread),
    },
  });
}

/** Whether the process that decides may start effects of the turn; a turn that nobody holds is claimed for its worker. */
function holds(draft: SessionDraft, { workerId, release }: TurnContext): boolean {
  const turn = running(draft)?.turn;
  if (turn === undefined || workerId === null || release === true) return false;
  if (turn.claim !== null) return turn.claim.workerId === workerId;
  draft.add({ type: 'segment.claimed', data: { turnId: turn.turnId, epoch: turn.epoch + 1, workerId } });
  return true;
}

/** A call is taken to cost what the one before it cost, and so is each that is under way. */
function wouldPassLimit({ maxCostUsd, usage, threads }: ActiveTurn, thread: Thread): boolean {
  if (maxCostUsd === null) return false;
  const calling = Object.values(threads).filter(({ pending }) => pending !== null);
  const underWay = calling.reduce((sum, { lastCostUsd }) => sum + lastCostUsd, 0);
  return usage.costUsd >= maxCostUsd || usage.costUsd + underWay + thread.lastCostUsd > maxCostUsd;
}

/** Asks a person to let model calls cost more; the thread waits for the answer. */
export function askToRaise(
  draft: SessionDraft,
  { thread, budgetId, why }: { thread: Thread; budgetId: string; why: string },
): void {
  const now = running(draft);
  if (now === null) return;
  const { session, turn } = now;
  draft.add({
    type: 'interaction.opened',
    data: {
      turnId: turn.turnId,
      interactionId: nextId('in', turn),
      kind: 'question',
      agentId: agentIdOf(session, thread),
      prompt: `${why} Respond with { "raise": { "limitUsd": … } } to go on, or { "raise": false } to end the turn.`,
      budgetId,
      ...byAgent(thread),
    },
  });
}

/** What the thread gives as it stands: text, or the value that its schema asks for. */
function outputOf(draft: SessionDraft, thread: Thread): unknown {
  const now = running(draft);
  if (thread.output !== null) return thread.output.value;
  const wanted = now === null ? undefined : manifestOf(now.session, now.turn, thread).outputSchema;
  return wanted === undefined ? thread.lastText : jsonOf(thread.lastText);
}

function finish(draft: SessionDraft, threadId: string): void {
  const now = running(draft);
  const thread = now?.turn.threads[threadId];
  if (now === null || thread === undefined) return;
  const { outputSchema } = manifestOf(now.session, now.turn, thread);
  const output = outputOf(draft, thread);
  // A turn that a hook stopped ends with what there is.
  const isChecked = outputSchema !== undefined && !thread.stopped;
  const problem = isChecked ? (output === undefined ? 'it is no JSON' : valueProblem(outputSchema, output)) : null;
  if (problem !== null) {
    refuseOutput(draft, threadId, problem);
    return;
  }
  if (hookDue(draft, threadId, { at: 'after', scope: 'turn' })) return;
  complete(draft, thread, output === undefined ? thread.lastText : output);
}

function refuseOutput(draft: SessionDraft, threadId: string, problem: string): void {
  const now = running(draft);
  const thread = now?.turn.threads[threadId];
  if (now === null || thread === undefined) return;
  if (thread.rejected >= REPAIRS_MAX || thread.output !== null) {
    const message = `The output does not fit the agent's outputSchema: ${problem}.`;
    failThread(draft, threadId, { code: 'output_invalid', message });
    return;
  }
  const message =
    `Your answer does not fit the required JSON Schema: ${problem}. ` + 'Answer again with nothing but the JSON value.';
  draft.add({ type: 'output.rejected', data: { turnId: now.turn.turnId, message, ...byAgent(thread) } });
}

function complete(draft: SessionDraft, thread: Thread, output: unknown): void {
  const now = running(draft);
  if (now === null) return;
  const { turnId, usage } = now.turn;
  const { agent, callId } = thread;
  if (agent === null || callId === null) {
    draft.add({ type: 'turn.completed', data: { turnId, output, usage } });
    return;
  }
  const outcome: Outcome = { kind: 'completed', output };
  draft.add({ type: 'delegation.completed', data: { turnId, agent, callId, status: 'completed', outcome } });
}

/** A model that was asked for JSON may put it into a code fence. Undefined: the text is no JSON that a store can hold. */
function jsonOf(text: string): unknown {
  try {
    return jsonValue.safeParse(JSON.parse(unfenced(text.trim()))).data;
  } catch {
    return undefined;
  }
}

/** By its two ends alone: an expression that looks for them would try every newline between as one of them. */
function unfenced(text: string): string {
  if (!text.startsWith(FENCE) || !text.endsWith(FENCE)) return text;
  return text
    .slice(FENCE.length, -FENCE.length)
    .replace(/^json\b/, '')
    .trim();
}

const FENCE = '```';
