import { beforeAll, describe, expect, test } from 'vitest';
import { isCanonical } from '#src/domain/session/canonical.ts';
import { sessionEventSchemas } from '#src/domain/session/events.ts';
import type { SessionEvent } from '#src/domain/session/events.ts';
import { TAGS } from '#src/http/described.ts';
import { EXAMPLES } from '#src/http/document-examples.ts';
import { mapOperations, objectOf } from '#src/http/document-shapes.ts';
import type { Json } from '#src/http/document-shapes.ts';
import { STATUS_OF } from '#src/http/problem.ts';
import { referencePage } from '#src/http/reference.ts';
import { PAYLOADS } from '#src/http/wire/events.ts';
import { openapiDocument } from '../../scripts/openapi.ts';

let document: Json;
const operations: { readonly id: string; readonly operation: Json }[] = [];
let schemas: Json;

beforeAll(async () => {
  document = objectOf(await openapiDocument());
  schemas = objectOf(objectOf(document['components'])['schemas']);
  mapOperations(objectOf(document['paths']), (operation) => {
    operations.push({ id: String(operation['operationId']), operation });
    return operation;
  });
});

function responseOf(id: string, status: string): Json {
  const { operation } = operations.find((one) => one.id === id) ?? {};
  return objectOf(objectOf(operation?.['responses'])[status]);
}

describe('the document', () => {
  test('gives each operation a name of its own, a summary and a tag that is explained', () => {
    expect(operations.length).toBeGreaterThan(60);
    const ids = operations.map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
    for (const { id, operation } of operations) {
      expect(id).toMatch(/^[a-z][A-Za-z]+$/);
      expect(String(operation['summary'])).toMatch(/^[A-Z].*[^.]$/);
      expect(operation['tags']).toEqual([expect.toSatisfy((tag: string) => tag in TAGS)]);
    }
  });

  test('shows a body for each operation that takes one, and for no other', () => {
    const takesJson = operations.filter(
      ({ operation }) => 'application/json' in objectOf(objectOf(operation['requestBody'])['content']),
    );
    expect(Object.keys(EXAMPLES).toSorted()).toEqual(takesJson.map(({ id }) => id).toSorted());
  });

  test('has a shape for each type of record that the history shows', () => {
    const types = Object.keys(sessionEventSchemas) as SessionEvent['type'][];
    // It is shown as `action.pending`.
    const shown = types.filter((type) => isCanonical(type) && type !== 'mcp.submitted').toSorted();
    expect(Object.keys(PAYLOADS).toSorted()).toEqual(shown);
    const { discriminator } = objectOf(schemas['EventRecord']);
    expect(Object.keys(objectOf(objectOf(discriminator)['mapping'])).toSorted()).toEqual(shown);
    for (const command of ['message', 'approve', 'respond', 'cancel', 'retry', 'action_result']) {
      expect(Object.keys(objectOf(objectOf(objectOf(schemas['Command'])['discriminator'])['mapping']))).toContain(
        command,
      );
    }
  });

  test('lists every code of a refusal', () => {
    const { code } = objectOf(objectOf(schemas['Problem'])['properties']);
    expect(objectOf(code)['enum']).toEqual(Object.keys(STATUS_OF));
  });

  test('names each body and each answer, and leaves nothing in two shapes without a reason', () => {
    for (const { id, operation } of operations) {
      const { requestBody, responses } = operation;
      const holders = [requestBody, ...Object.values(objectOf(responses))].map(objectOf);
      const shapes = holders.flatMap(({ content }) => objectOf(objectOf(content)['application/json'])['schema'] ?? []);
      for (const shape of shapes) expect(objectOf(shape)['$ref'], id).toMatch(/^#\/components\/schemas\//);
    }
    expect(Object.keys(schemas).filter((name) => name.endsWith('Input'))).toEqual([]);
  });

  test('describes streams by what their frames hold, and files with their ranges', () => {
    const shapeOf = (id: string): unknown =>
      objectOf(objectOf(objectOf(responseOf(id, '200')['content'])['text/event-stream'])['schema'])['$ref'];
    expect(shapeOf('streamEvents')).toBe('#/components/schemas/EventRecord');
    expect(shapeOf('connectExecutor')).toBe('#/components/schemas/WorkAvailable');
    for (const id of ['getArtifactContent', 'getArtifactFile', 'openArtifactLink']) {
      expect(responseOf(id, '206')['headers'], id).toHaveProperty('content-range');
      expect(responseOf(id, '304')['headers'], id).toHaveProperty('etag');
      expect(responseOf(id, '416'), id).toEqual({ $ref: '#/components/responses/RangeNotSatisfiable' });
    }
  });
});

test('the page for people has every operation and shape, links that lead somewhere, and nothing from outside', () => {
  const page = referencePage(document);
  const anchors = new Set([...page.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id));
  for (const { id } of operations) expect(anchors).toContain(id);
  for (const name of Object.keys(schemas)) expect(anchors).toContain(`shape-${name}`);
  const links = [...page.matchAll(/href="([^"]+)"/g)].map(([, target = '']) => target);
  for (const link of links.filter((target) => target !== 'openapi.json')) expect(anchors).toContain(link.slice(1));
  expect(page).not.toMatch(/<script|<link|<img| src=|@import|url\(/);
});
