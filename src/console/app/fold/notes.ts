import type { EventRecord } from '../../../client/client.ts';
import type { NoteEntry } from './entries.ts';

type Note = Pick<NoteEntry, 'tone' | 'text' | 'detail'>;

/** The line in the conversation for a record that says nothing itself; null: none. */
export function noteOf(record: EventRecord): Note | null {
  switch (record.type) {
    case 'command.cancel':
      return { tone: 'quiet', text: 'A person cancelled', detail: record.payload.reason };
    case 'command.retry':
      return { tone: 'quiet', text: 'A person resumed the failed turn' };
    case 'effect.uncertain': {
      const { kind, reason } = record.payload;
      return { tone: 'warn', text: `A ${kind} call was ${reason}`, detail: 'Whether it ran is not known.' };
    }
    case 'mcp.state': {
      const { server, state, toolCount, reason } = record.payload;
      if (state === 'connected') return { tone: 'quiet', text: `${server}: connected, ${toolCount ?? 0} tools` };
      return { tone: 'warn', text: `${server}: ${state === 'needs_auth' ? 'needs a sign-in' : state}`, detail: reason };
    }
    case 'sandbox.state': {
      const { state, reason } = record.payload;
      // Each call of a virtual sandbox says that it runs.
      if (state === 'running' || state === 'ready') return null;
      return { tone: 'quiet', text: `The sandbox is ${state}`, detail: reason };
    }
    default:
      return null;
  }
}
