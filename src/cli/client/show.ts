import type { EventRecord } from '../../client/client.ts';

const CHARS_MAX = 200;

/** A record as a line for a person; null: it says nothing new. */
export function lineOf(event: EventRecord): string | null {
  switch (event.type) {
    case 'message.assistant': {
      const calls = event.payload.toolCalls.map(({ name, input }) => `[calls ${name} ${short(input)}]`);
      return [event.payload.text, ...calls].filter((text) => text !== '').join('\n') || null;
    }
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

/** Whether it ends a turn. */
export function endsTurn({ type }: EventRecord): boolean {
  return type === 'turn.completed' || type === 'turn.failed' || type === 'turn.cancelled';
}

export function short(value: unknown): string {
  const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
  return text.length > CHARS_MAX ? `${text.slice(0, CHARS_MAX)}…` : text;
}

/** Rows under a heading, columns as wide as needed. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const all = [head, ...rows];
  const widths = head.map((_, column) => Math.max(...all.map((row) => (row[column] ?? '').length)));
  const line = (row: readonly string[]): string =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd();
  return `${all.map(line).join('\n')}\n`;
}
