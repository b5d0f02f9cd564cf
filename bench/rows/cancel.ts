import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { ms, Sample } from '../figures.ts';
import { expectStatus } from '../loops.ts';
import type { Row } from '../row.ts';
import { names, Tenant } from '../tenant.ts';
import { Lines } from '../wire.ts';

const TURNS = 300;
const WARM_UP = 40;
const SESSIONS = 8;
const WITHIN_MS = 100;

/** A provider that takes every request and never answers; it says when one has come and when its client has gone. */
async function hangingProvider() {
  let [asked, gone] = [(): void => undefined, (): void => undefined];
  const server = createServer((request, response) => {
    request.resume();
    response.on('close', () => gone());
    asked();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    baseUrl: `http://127.0.0.1:${port}/v1`,
    asked: async (): Promise<void> => await new Promise((resolve) => (asked = resolve)),
    gone: async (): Promise<void> => await new Promise((resolve) => (gone = resolve)),
    close: (): void => {
      server.closeAllConnections();
      server.close();
    },
  };
}

/**
 * From sending a cancel until the provider sees its connection closed, while the call hangs on one node: with the cancel
 * sent to the other node, held against the same sent to the node itself.
 */
export const cancelLatency: Row = async ({ stage, scale, report }) => {
  const [here, there] = [await stage.host('commands,reads,projector,engine'), await stage.host('commands,reads')];
  const provider = await hangingProvider();
  const tenant = await Tenant.create(here, stage.adminKey);
  await tenant.callModelAt(here, provider.baseUrl);
  const ids = names('hanging', SESSIONS);
  await tenant.openSessions(here, ids);
  const [own, other] = [new Lines(here.address), new Lines(there.address)];
  const cancelled = async (id: string, lines: Lines): Promise<number> => {
    const asked = provider.asked();
    expectStatus(await own.send(tenant.message(id, 'Hello')), 202);
    await asked;
    const gone = provider.gone();
    const began = performance.now();
    const answer = lines.send(tenant.cancel(id, 'enough'));
    await gone;
    const elapsedMs = performance.now() - began;
    expectStatus(await answer, 202);
    return elapsedMs;
  };
  let [subject, baseline] = [new Sample(), new Sample()];
  for (let turn = 0; turn < WARM_UP + TURNS * scale; turn++) {
    if (turn === WARM_UP) [subject, baseline] = [new Sample(), new Sample()];
    const id = ids[turn % SESSIONS] ?? '';
    subject.add(await cancelled(id, other));
    baseline.add(await cancelled(id, own));
  }
  report(`${subject.size} cancels of either kind`);
  own.close();
  other.close();
  provider.close();
  return [
    {
      measure: 'cancel at another node to the hanging call given up (bare: at the same node)',
      subject: subject.text,
      baseline: baseline.text,
      ratio: (subject.at(0.5) / baseline.at(0.5)).toFixed(2),
      target: `p99 < ${ms(WITHIN_MS)}`,
      met: subject.at(0.99) < WITHIN_MS,
      goals: [
        {
          label: 'cancel reaches a call elsewhere, p99',
          value: subject.at(0.99),
          target: WITHIN_MS,
          unit: 'ms',
          better: 'less',
        },
      ],
    },
  ];
};
