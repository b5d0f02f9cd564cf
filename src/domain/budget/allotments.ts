import type { BudgetEvent, CountedCall } from './events.ts';

/**
 * A part of the budgets that a worker's node may spend on calls of one agent without asking for each. Until it is settled
 * or returned it counts as spent, on every node.
 *
 *   open → recalled (another node lacks what it has, or the budgets changed) → shrunk to the calls in progress → returned
 *   open → returned (unused, or silent past its end)
 */
export interface Allotment {
  readonly allotmentId: string;
  /** Which worker's node has it. */
  readonly holder: string;
  readonly agentId: string;
  /** What is left of it: calls in progress included, settled ones not. 0 from the start: of no limit. */
  readonly costUsd: number;
  readonly tokens: number;
  /** RFC 3339. Its holder draws on it until then, and extends it before. */
  readonly until: string;
  readonly phase: 'open' | 'recalled' | 'shrunk';
  /** Calls that were settled from it: none is settled twice. */
  readonly drawn: readonly string[];
}

export type Allotments = Readonly<Record<string, Allotment>>;

export type AllotmentEvent = Extract<BudgetEvent, { type: `allotment${string}` }>;

export function isOfAllotment(event: BudgetEvent): event is AllotmentEvent {
  return event.type.startsWith('allotment');
}

/** Total: an event that cannot apply changes nothing. */
export function evolveAllotments(allotments: Allotments, event: AllotmentEvent): Allotments {
  if (event.type === 'allotment.granted') {
    const granted: Allotment = { ...event.data, phase: 'open', drawn: [] };
    return { ...allotments, [granted.allotmentId]: granted };
  }
  if (event.type === 'allotments.recalled') return recalled(allotments);
  const { [event.data.allotmentId]: known, ...others } = allotments;
  if (known === undefined) return allotments;
  switch (event.type) {
    case 'allotment.returned':
      return others;
    case 'allotment.changed': {
      const phase = known.phase === 'open' ? 'open' : 'shrunk';
      return { ...allotments, [known.allotmentId]: { ...known, ...event.data, phase } };
    }
    case 'allotment.drawn': {
      const { callId, costUsd, tokens } = event.data;
      const left = { costUsd: Math.max(0, known.costUsd - costUsd), tokens: Math.max(0, known.tokens - tokens) };
      return { ...allotments, [known.allotmentId]: { ...known, ...left, drawn: [...known.drawn, callId] } };
    }
  }
}

/** Nothing more is drawn on any of them; what is in progress continues. */
export function recalled(allotments: Allotments): Allotments {
  return Object.fromEntries(
    Object.entries(allotments).map(([id, one]) => [id, one.phase === 'open' ? { ...one, phase: 'recalled' } : one]),
  );
}

/** As budgets count it: its calls are in sessions that have no budget of their own. */
export function countedAs({ allotmentId, agentId, costUsd, tokens }: Allotment): CountedCall {
  return { callId: allotmentId, agentId, sessionId: '', costUsd, tokens };
}
