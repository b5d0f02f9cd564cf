import { needsOf } from '../../../domain/agent/needs.ts';
import { decideMessage } from '../../../domain/session/decide.ts';
import { receiptKey } from '../../../domain/session/receipts.ts';
import type { CommandHandler, SentMessage } from '../command-handler.ts';
import { requireKnown } from '../../../lib/older-nodes.ts';
import { resolveParts } from '../message-files.ts';
import { usedAgents } from '../used-agents.ts';
import { refusedStart, startContext } from './starting.ts';

/** A message: its own manifest may use agents, and its parts may name files. */
export function messageHandler(command: SentMessage): CommandHandler {
  const { subject, manifest, parts } = command;
  return {
    key: (idempotencyKey) => receiptKey(subject, idempotencyKey),
    prepare: async (deps, { ref, fileOutOfReach: outOfReach }) => {
      const agents = await usedAgents(deps.agents, ref.tenant, manifest);
      const used = agents.kind === 'rejected' ? [] : Object.values(agents.agents ?? {});
      requireKnown(deps.isNew, [manifest, ...used.map((one) => one.manifest)].flatMap(needsOf));
      const files = await resolveParts(deps.artifacts, ref.tenant, { parts, outOfReach });
      return (state, context) => {
        if (agents.kind === 'rejected') return agents;
        if (files.kind === 'rejected') return files;
        const refusal = refusedStart(deps, ref);
        if (refusal !== null) return refusal;
        const starting = { ...startContext(deps, ref, context), agents: agents.agents };
        return decideMessage(state, { ...command, parts: files.parts }, starting);
      };
    },
  };
}
