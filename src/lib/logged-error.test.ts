import { DatabaseError } from 'pg';
import { expect, test } from 'vitest';
import { loggedError } from './logged-error.ts';

function thrown(work: () => unknown): Error {
  try {
    work();
  } catch (error) {
    if (error instanceof Error) return error;
  }
  throw new Error('nothing was thrown');
}

test('shows what an error is and where it came from, down to its cause', () => {
  const cause = Object.assign(new Error('connection refused'), { code: 'ECONNREFUSED' });
  const shown = loggedError(new TypeError('the read store is away', { cause }));
  expect(shown).toMatchObject({ type: 'TypeError', message: 'the read store is away' });
  expect(shown.stack).toContain('logged-error.test.ts');
  expect(shown.stack.startsWith('    at ')).toBe(true);
  expect(shown.cause).toMatchObject({ message: 'connection refused', code: 'ECONNREFUSED' });
  const many = loggedError(new AggregateError([cause, cause], 'all of them'));
  expect(many.errors).toHaveLength(2);
});

test('shows nothing of rows, statements, values or bodies that errors carry', () => {
  const failing = Object.assign(new DatabaseError('null value in column "doc" violates a constraint', 1, 'error'), {
    code: '23502',
    detail: 'Failing row contains (planted).',
    where: 'COPY history, line 1: planted',
  });
  const invalid = Object.assign(new DatabaseError('invalid input syntax for type json: "planted"', 1, 'error'), {
    code: '22P02',
    severity: 'ERROR',
  });
  const wrapped = Object.assign(new Error('Query violates a constraint.', { cause: failing }), {
    sql: 'insert into x values ($1)',
    values: ['planted'],
    requestBodyValues: { key: 'planted' },
  });
  const parsed = [
    thrown(() => JSON.parse('planted is not JSON') as unknown),
    thrown(() => JSON.parse('{"a": planted-and-long-enough-to-be-cut-somewhere-in-the-middle-of-it}') as unknown),
  ];
  for (const error of [failing, invalid, wrapped, ...parsed, 'planted', { secret: 'planted' }]) {
    const text = JSON.stringify(loggedError(error));
    expect(text).not.toContain('planted');
    expect(text).not.toContain('insert into');
  }
  expect(loggedError(failing).message).toContain('column "doc"');
});

test('ends, whatever causes what', () => {
  const loop = new Error('a');
  loop.cause = loop;
  expect(JSON.stringify(loggedError(loop)).length).toBeLessThan(100_000);
  expect(loggedError(new Error('x'.repeat(100_000))).message.length).toBeLessThanOrEqual(4_000);
});
