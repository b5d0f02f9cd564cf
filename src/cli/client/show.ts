import type { EventRecord } from '../../client/client.ts';
import { plainText } from '../terminal.ts';

const CHARS_MAX = 200;

/** A record as a line for a person, neutral for a terminal; null: it says nothing new. */
export function lineOf(event: EventRecord): string | null {
  const said = saidBy(event);
  return said === null ? null : plainText(said);
}

function saidBy(event: EventRecord): string | null {
  switch (event.type) {
    case 'message.assistant':
      return [event.payload.text, ...calls(event.payload)].filter((text) => text !== '').join('\n') || null;
    case 'action.completed': {
      const { toolName = 'hook', outcome } = event.payload;
      return outcome.kind === 'completed'
        ? `[${toolName} gave ${short(outcome.output)}]`
        : `[${toolName} failed: ${outcome.message}]`;
    }
    case 'action.uncertain':
      return '[an executor fell silent: it is not known whether its tool ran]';
    case 'effect.uncertain':
      return `[it is not known whether a ${event.payload.kind} call happened]`;
    case 'delegation.started':
      return `[asks ${event.payload.agent.id}: ${event.payload.task}]`;
    case 'artifact.created':
      return `[file ${event.payload.name}, version ${event.payload.version}]`;
    case 'turn.waiting':
      return '[waits for an executor]';
    case 'turn.failed':
      return `[failed, ${event.payload.error.code}: ${event.payload.error.message}]`;
    case 'turn.cancelled':
      return '[cancelled]';
    default:
      return null;
  }
}

/** The calls of a message, neutral for a terminal; null: it has none. */
export function callsOf({ payload }: Extract<EventRecord, { type: 'message.assistant' }>): string | null {
  return payload.toolCalls.length === 0 ? null : plainText(calls(payload).join('\n'));
}

function calls({ toolCalls }: Extract<EventRecord, { type: 'message.assistant' }>['payload']): readonly string[] {
  return toolCalls.map(({ name, input }) => `[calls ${name} ${short(input)}]`);
}

/** Whether it ends a turn. */
export function endsTurn({ type }: EventRecord): boolean {
  return type === 'turn.completed' || type === 'turn.failed' || type === 'turn.cancelled';
}

export function short(value: unknown, charsMax = CHARS_MAX): string {
  const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
  return text.length > charsMax ? `${text.slice(0, charsMax)}… (${text.length - charsMax} more characters)` : text;
}
