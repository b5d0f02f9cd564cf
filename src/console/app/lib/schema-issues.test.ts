import { expect, test } from 'vitest';
import { schemaIssues } from './schema-issues.ts';

const schema = {
  $ref: '#/components/schemas/Manifest',
  components: {
    schemas: {
      Manifest: {
        type: 'object',
        required: ['instructions'],
        properties: {
          instructions: { type: 'string', maxLength: 5 },
          tools: {
            type: 'array',
            items: { type: 'object', properties: { name: { type: 'string', pattern: '^[a-z]+$' } } },
          },
        },
      },
    },
  },
};

test('each member that is wrong is named once, by its place', () => {
  expect(schemaIssues(schema, { instructions: 'short' })).toEqual([]);
  const issues = schemaIssues(schema, { instructions: 'too long', tools: [{ name: 'ok' }, { name: 'A/b' }] });
  expect(issues.map(({ path }) => path)).toEqual(['instructions', 'tools.1.name']);
  expect(schemaIssues(schema, {})).toMatchObject([{ path: '', message: expect.stringContaining('instructions') }]);
});
