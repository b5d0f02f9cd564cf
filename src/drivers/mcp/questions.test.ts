import { describe, expect, test } from 'vitest';
import { QuestionError, Round } from './questions.ts';

const form = { message: 'How many?', requestedSchema: { type: 'object', properties: { n: { type: 'integer' } } } };
const asking = (params: object) => ({ q: { method: 'elicitation/create', params } });
const of = { tool: 'act', round: 1, requestState: 'opaque' };

describe('what cannot be put to a person is refused', () => {
  test.each([
    ['another request', { q: { method: 'sampling/createMessage', params: {} } }],
    ['no request', { q: 5 }],
    ['no questions', {}],
    ['too many', Object.fromEntries(Array.from({ length: 9 }, (_, i) => [`q${i}`, asking(form).q]))],
    ['no message', asking({ requestedSchema: { type: 'object' } })],
    [
      'a schema that does not compile',
      asking({ ...form, requestedSchema: { type: 'object', properties: { n: { type: 5 } } } }),
    ],
    ['a schema that is too large', asking({ ...form, requestedSchema: { type: 'object', title: 'x'.repeat(20_000) } })],
    ['an address in the clear', asking({ mode: 'url', message: 'm', url: 'http://sign.example/' })],
    ['an address that runs', asking({ mode: 'url', message: 'm', url: 'javascript:alert(1)' })],
    ['an address with a password', asking({ mode: 'url', message: 'm', url: 'https://a:b@sign.example/' })],
  ])('%s', (_what, sent) => {
    expect(() => Round.asked(of, sent)).toThrow(QuestionError);
  });

  test('a state that is too large, and the round after too many', () => {
    expect(() => Round.asked({ ...of, requestState: 'x'.repeat(70_000) }, asking(form))).toThrow(QuestionError);
    expect(() => Round.asked({ ...of, round: 33 }, asking(form))).toThrow(QuestionError);
  });
});

test('a message is cut, and a form that cannot be is left unanswered', () => {
  const asked = Round.asked(of, asking({ ...form, message: 'x'.repeat(10_000) }));
  expect(asked.question.message).toHaveLength(4_000);
  const nested = asked.answered({ action: 'accept', content: { n: { deep: true } } });
  expect(nested).toEqual({
    isDeclined: false,
    params: { inputResponses: { q: { action: 'accept' } }, requestState: 'opaque' },
  });
});

test('a state says for which tool it is, and survives as text', () => {
  const { text } = Round.asked(of, { ...asking(form), r: asking(form).q });
  expect(Round.read(text, 'other')).toBeNull();
  const next = Round.read(text, 'act')?.answered({ action: 'decline' });
  if (!(next instanceof Round)) throw new Error('there is another question');
  expect(Round.read(next.text, 'act')?.answered({ action: 'accept', content: { n: 3 } })).toEqual({
    isDeclined: false,
    params: {
      inputResponses: { q: { action: 'decline' }, r: { action: 'accept', content: { n: 3 } } },
      requestState: 'opaque',
    },
  });
});
