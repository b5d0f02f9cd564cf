import { expect, test } from 'vitest';
import { createCodec, UndecodableCommitError } from './codec.ts';
import type { Commit } from './commit.ts';

const commit = (events: Commit['events']): Commit => ({
  v: 1,
  rev: 1,
  commitId: 'co_1',
  at: '2026-01-01T00:00:00.000Z',
  actor: 'application:app',
  causation: 'r1',
  events,
});

test('a commit survives encoding, with every character JSON can carry', () => {
  const codec = createCodec({});
  const written = commit([
    { id: 'ev_1', type: 'note.taken', v: 1, data: { text: 'ä \u2028 " \\ 😀', list: [1, null] } },
  ]);
  expect(codec.decode(codec.encode(written))).toEqual(written);
});

test('an old event is read in its newest shape, step by step', () => {
  // Version 1 had one `name`; version 2 split it; version 3 counts the letters of both.
  const old = createCodec({});
  const now = createCodec({
    'person.named': {
      1: ({ name }) => {
        const [first, last] = String(name).split(' ');
        return { first, last };
      },
      2: (data) => ({ ...data, letters: `${String(data['first'])}${String(data['last'])}`.length }),
    },
  });
  const bytes = old.encode(
    commit([
      { id: 'ev_1', type: 'person.named', v: 1, data: { name: 'Ada Lovelace' } },
      { id: 'ev_2', type: 'other', v: 1, data: { kept: true } },
    ]),
  );
  expect(now.decode(bytes).events).toEqual([
    { id: 'ev_1', type: 'person.named', v: 3, data: { first: 'Ada', last: 'Lovelace', letters: 11 } },
    { id: 'ev_2', type: 'other', v: 1, data: { kept: true } },
  ]);
  expect([now.versionOf('person.named'), now.versionOf('other')]).toEqual([3, 1]);
});

test.each([
  ['an event from a newer program', '{"v":1,"events":[{"id":"e","type":"t","v":2,"data":{}}]}'],
  ['another envelope', '{"v":2,"events":[]}'],
  ['broken JSON', '{"v":1,'],
])('%s is refused, not guessed at', (_, text) => {
  expect(() => createCodec({}).decode(new TextEncoder().encode(text))).toThrow(UndecodableCommitError);
});

test('a missing upcaster is refused', () => {
  const codec = createCodec({ t: { 2: (data) => data } });
  const bytes = createCodec({}).encode(commit([{ id: 'e', type: 't', v: 1, data: {} }]));
  expect(() => codec.decode(bytes)).toThrow(/no upcaster from version 1/);
});
