import { median, ms, Sample } from '../figures.ts';
import { expectStatus } from '../loops.ts';
import type { Row } from '../row.ts';
import { Tenant } from '../tenant.ts';
import { Lines, request } from '../wire.ts';

const ROUNDS = 6_000;
const WARM_UP = 600;
/** Failed authentications wait past their rate; what is measured here is the answer, not the wait. */
const UNLIMITED = { AGENT_HOST_FAILED_AUTH_PER_SECOND: '100000' };

/**
 * Whether the time of a refusal tells what was wrong: an unknown tenant, an unknown key, and a key of another tenant, one
 * after the other on one connection, in an order that changes. It asserts nothing; the ratios are for the reader.
 */
export const refusals: Row = async ({ stage, scale, report }) => {
  const host = await stage.host('commands,reads,projector,engine', UNLIMITED);
  const [tenant, foreign] = [await Tenant.create(host, stage.adminKey), await Tenant.create(host, stage.adminKey)];
  const unknown = foreign.key.slice(0, -8).padEnd(foreign.key.length, '0');
  const ask = (key: string, id: string): string =>
    request('GET', '/v1/me', { headers: `Authorization: Bearer ${key}\r\nSvc-Tenant: ${id}\r\nSvc-Protocol: 8\r\n` });
  const cases = [
    { name: 'unknown tenant', text: ask(tenant.key, `tn_${'0'.repeat(26)}`), sample: new Sample() },
    { name: 'unknown key', text: ask(unknown, tenant.id), sample: new Sample() },
    { name: 'key of another tenant', text: ask(foreign.key, tenant.id), sample: new Sample() },
  ];
  const lines = new Lines(host.address);
  const bodies = new Set<string>();
  for (let round = 0; round < WARM_UP + ROUNDS * scale; round++) {
    // Each is as often the first, the second and the third.
    for (const at of [round, round + 1, round + 2]) {
      const one = cases[at % cases.length];
      if (one === undefined) continue;
      const began = performance.now();
      const answer = await lines.send(one.text);
      const took = performance.now() - began;
      expectStatus(answer, 401);
      bodies.add(answer.body.replace(/"requestId":"[^"]*"/, ''));
      if (round >= WARM_UP) one.sample.add(took);
    }
  }
  lines.close();
  const medians = cases.map(({ sample }) => sample.at(0.5));
  const middle = median(medians);
  report(`${cases[0]?.sample.size} of each; ${bodies.size} different answer but for the request id`);
  return cases.map(({ name, sample }) => ({
    measure: `refusals, ${name} (401 credential_invalid)`,
    subject: sample.text,
    baseline: `${ms(middle)} the middle of the three`,
    ratio: (sample.at(0.5) / middle).toFixed(3),
    target: 'none: a figure to look at',
    met: true,
    goals: [],
  }));
};
