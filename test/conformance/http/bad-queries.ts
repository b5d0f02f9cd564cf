import { expect, test } from 'vitest';
import { z } from 'zod';
import type { TenantClient } from '../../support/client.ts';
import { seededRandom } from '../../support/random.ts';
import { invalid, ROOM } from './call.ts';
import type { Call, World } from './call.ts';
import { CURSORS } from './cursors.ts';
import { refused } from './target.ts';

const BAD_ENCODINGS = ['%', '%z', '%zz', '%e0%a4', '%ff', '%ed%a0%80', 'a%'];
const BAD_IDS = [
  '%20',
  'a%20b',
  '%00',
  'a%00',
  '.',
  '.a',
  '-a',
  '_',
  '%2Fa',
  'a%2F',
  'a%2F%2Fb',
  '%C3%A4',
  "'",
  'a%0Ab',
  'a%2F..',
  '%25',
];
const TOO_LONG = ['x'.repeat(201), 'x'.repeat(5_000), '%41'.repeat(201)];

export function parameters(call: Call): void {
  test('path parameters that are no ids, or badly encoded', async () => {
    for (const name of Object.keys(call.row.params ?? {})) {
      const isFree = call.row.freeParams?.includes(name) === true;
      for (const id of isFree ? BAD_ENCODINGS : [...BAD_ENCODINGS, ...BAD_IDS, ...TOO_LONG]) {
        // With everything behind it wrong too: the body, and the resource is not there.
        const answer = await call.send({ path: call.path({ [name]: id }), ...(call.hasBody ? { body: '{}' } : {}) });
        expect(invalid(answer), id).not.toEqual([]);
      }
      const [status, code] =
        call.row.realm === 'open' ? ([401, 'credential_required'] as const) : ([404, 'not_found'] as const);
      refused(await call.send({ path: call.path({ [name]: '' }) }), status, code);
    }
  });
}

export function queries(call: Call): void {
  const { query = {}, limitMax } = call.row;
  const known = [
    ...Object.keys(query),
    ...(limitMax === undefined ? [] : ['limit']),
    ...(CURSORS[call.name] ? ['cursor'] : []),
  ];
  const limits = [
    '',
    '0',
    '-1',
    String((limitMax ?? 0) + 1),
    '1.5',
    'x',
    '1e2',
    '%201',
    '+1',
    '9999999999999999999999',
    '0x10',
  ];

  test('query parameters that are unknown, repeated, badly encoded or wrong', async () => {
    const wrong = [
      ...[
        'nope=1',
        'nope',
        '__proto__=1',
        '__proto__[a]=1',
        'constructor=1',
        'toString=1',
        'limit[]=1',
        'cursor.a=1',
        'Limit=1',
      ],
      ...BAD_ENCODINGS.flatMap((bad) => [`nope=${bad}`, `${bad}=1`, ...known.map((name) => `${name}=${bad}`)]),
      ...known.map((name) => `${name}=1&${name}=1`),
      ...Object.entries(query).flatMap(([name, values]) => values.map((value) => `${name}=${value}`)),
      ...(limitMax === undefined ? [] : limits.map((limit) => `limit=${limit}`)),
    ];
    const body = call.row.bodies?.[0]?.whole;
    for (const text of wrong) {
      const answer = await call.send({ path: `${call.path()}?${text}`, ...(body === undefined ? {} : { body }) });
      expect(invalid(answer), text).not.toEqual([]);
    }
  });
}

export function cursors(call: Call, kind: 'history' | 'list', world: () => World): void {
  test('cursors that are none, or of another session, route or filter set', async () => {
    const { tenant } = world();
    const [own = '', second = ''] = (await tenant.items(ROOM)).map(({ cursor }) => cursor);
    const [other = ''] = (await tenant.items('room/2')).map(({ cursor }) => cursor);
    const nextOf = async (client: TenantClient, path: string): Promise<string> =>
      z.object({ nextCursor: z.string() }).parse((await client.request({ path })).json).nextCursor;
    const calls = '/v1/sessions/room%2F1/calls/model?limit=1';
    const lists = {
      'GET /v1/sessions': await nextOf(tenant, '/v1/sessions?limit=1'),
      'GET /v1/sessions/{sessionId}/calls/model': await nextOf(tenant, calls),
    };
    const elsewhere = [
      await nextOf(tenant, '/v1/sessions?limit=1&agentId=agent'),
      await nextOf(tenant, calls.replace('F1', 'F2')),
      ...Object.entries(lists)
        .filter(([name]) => name !== call.name)
        .map(([, cursor]) => cursor),
      other,
    ];
    const none = [
      '',
      ' ',
      'x',
      'AAAA',
      '%00',
      'null',
      '0',
      'LATEST',
      '%C3%A4',
      'a'.repeat(2_001),
      `${own}A`,
      own.slice(1),
      own + second,
    ];
    const wrong = [
      ...none,
      ...elsewhere,
      ...(kind === 'history' ? [] : [own, 'latest']),
      ...Object.values(lists).map((list) => `${list}A`),
    ];
    for (const cursor of wrong) {
      const path = `${call.path()}?cursor=${cursor.includes('%') ? cursor : encodeURIComponent(cursor)}`;
      expect(refused(await call.send({ path }), 400, 'cursor_invalid').details, cursor).toBeUndefined();
      if (!call.name.endsWith('/events') || cursor === '' || !/^[\x21-\x7e]+$/.test(cursor)) continue;
      refused(await call.send({ headers: { 'last-event-id': cursor } }), 400, 'cursor_invalid');
    }
  });

  test('cursors with one character changed never break anything', async () => {
    const random = seededRandom(`cursors of ${call.name}`);
    const { tenant } = world();
    const page = await call.send({
      path: `${call.path()}?limit=1`,
      ...(call.name.endsWith('/events') ? { method: 'HEAD' } : {}),
    });
    const given = z
      .object({ cursor: z.string().nullish(), nextCursor: z.string().nullish() })
      .safeParse(page.json).data;
    const [first] = await tenant.items(ROOM);
    const cursor = given?.nextCursor ?? given?.cursor ?? first?.cursor ?? '';
    for (let round = 0; round < 40; round += 1) {
      const place = random.int(0, cursor.length - 1);
      const letter = 'ABCxyz019-_'.charAt(random.int(0, 10));
      const changed = cursor.slice(0, place) + letter + cursor.slice(place + 1);
      // HEAD, because the cursor of a history that names another place of it opens a stream.
      const answer = await call.send({ method: 'HEAD', path: `${call.path()}?cursor=${changed}` });
      const fine = changed === cursor || kind === 'history' ? [200, 400] : [400];
      expect(fine, `${changed} ${answer.status}`).toContain(answer.status);
    }
  });
}
