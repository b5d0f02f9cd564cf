import { expect, test } from 'vitest';
import { fold, open } from '../../test/support/given.ts';
import { created } from '../../test/support/sessions.ts';
import { initialSession } from '../domain/session/state.ts';
import { sessionType } from './aggregate.ts';

test('a session weighs what it knows of its artifacts', () => {
  const empty = open(fold(initialSession, [created()]));
  const full = { ...empty, artifacts: { ...empty.artifacts, count: 10_000 } };
  expect(sessionType.weigh(full) - sessionType.weigh(empty)).toBe(1_000_000);
});
