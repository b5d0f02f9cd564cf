import { expect, test } from 'vitest';
import type { SandboxEvent } from '../../domain/sandbox/events.ts';
import { evolveSandboxView } from './views.ts';
import type { SandboxView } from './views.ts';

const created: SandboxEvent = {
  type: 'sandbox.created',
  data: {
    ...{ sandboxId: 'sb_1', kind: 'pod', spec: {}, subject: null, labels: {}, workspace: 'ws_1' },
    ...{ owner: null, files: null, storedBytes: 0 },
  },
} as unknown as SandboxEvent;
const observed = (hostEpoch: number, volumeGeneration: number, reason?: string): SandboxEvent => {
  const seen = reason === undefined ? 'running' : 'failed';
  return { type: 'sandbox.observed', data: { observed: seen, hostEpoch, volumeGeneration, reason } };
};
const history: readonly SandboxEvent[] = [
  created,
  observed(1, 1),
  { type: 'sandbox.reset', data: { files: null, storedBytes: 0 } } as unknown as SandboxEvent,
  observed(1, 2, 'no node has room'),
  observed(1, 2),
  { type: 'sandbox.stopped', data: { hostEpoch: 2 } } as unknown as SandboxEvent,
  { type: 'sandbox.started', data: { hostEpoch: 3 } } as unknown as SandboxEvent,
  observed(3, 2),
];

/** Folds the history; the row is written and read again before each event of which this says so. */
function rowOf(isReadBefore: (index: number) => boolean): string {
  let view: SandboxView | undefined;
  for (const [index, event] of history.entries()) {
    if (view !== undefined && isReadBefore(index)) view = JSON.parse(JSON.stringify(view)) as SandboxView;
    view = evolveSandboxView(view, event, { at: '2026-01-01T00:00:00.000Z', position: index + 1, index: 0 });
  }
  return JSON.stringify(view);
}

test('a row is the same bytes wherever batches end', () => {
  const atOnce = rowOf(() => false);
  expect(JSON.parse(atOnce)).toMatchObject({ machine: { hostEpoch: 3, observed: 'running', volume: 2 } });
  for (let ends = 0; ends < 2 ** history.length; ends++)
    expect(rowOf((index) => ((ends >> index) & 1) === 1)).toBe(atOnce);
});
