import { beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { send } from '../../support/client.ts';
import { bodies, noHttp } from './bad-bodies.ts';
import { anyRoute, emptyBody, fileType, guarded, jsonRoute } from './bad-headers.ts';
import { cursors, parameters, queries } from './bad-queries.ts';
import { Call, makeWorld } from './call.ts';
import type { BadInputTarget, World } from './call.ts';
import { CURSORS } from './cursors.ts';
import { ROUTES } from './routes.ts';

/** Whatever is sent, the answer is the documented refusal, in the documented order of checks, and nothing is stored. */
export function badInputSuite(target: () => BadInputTarget): void {
  let world: World;
  let before: unknown;

  beforeAll(async () => {
    world = await makeWorld(target());
    before = await world.stored();
  });

  /** For a route as a whole: to look after each of its cases would be most of the suite's time. */
  const nothingIsStored = (): void => {
    test('nothing is stored', async () => {
      expect(await world.stored()).toEqual(before);
    });
  };

  test('the table has every operation of the document, and no other', async () => {
    const { json } = await send(target().nodes[0].url, { path: '/openapi.json' });
    const { paths } = z.object({ paths: z.record(z.string(), z.record(z.string(), z.unknown())) }).parse(json);
    const operations = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    );
    expect(Object.keys(ROUTES).toSorted()).toEqual(operations.toSorted());
  });

  describe.each(Object.entries(ROUTES))('%s', (name, row) => {
    const call = new Call(name, row, () => ({ target: target(), world }));
    const isFile = row.rawBody === true;
    anyRoute(call);
    if (isFile) fileType(call);
    else jsonRoute(call);
    if (!isFile && row.bodies === undefined && row.realm !== 'open') emptyBody(call);
    if (row.realm !== 'open') guarded(call, () => world);
    if (row.params !== undefined) parameters(call);
    if (row.realm !== 'open') queries(call);
    if (CURSORS[name] !== undefined) cursors(call, CURSORS[name], () => world);
    if (row.bodies !== undefined) bodies(call, () => target().nodes[0].url);
    nothingIsStored();
  });

  describe('bytes that are no HTTP', () => {
    noHttp(() => target().nodes[0].url);
    nothingIsStored();
  });
}
