import { describe, expect, test } from 'vitest';
import { newSession, newTenant } from './target.ts';
import type { HttpTarget } from './target.ts';

const ROUNDS = 200;

/** What two nodes promise together. With one node twice it holds too, but shows less. */
export function nodeSuite(target: () => HttpTarget): void {
  describe('two nodes', () => {
    test(
      `a command accepted by either is in the next page of both, ${ROUNDS} rounds`,
      { timeout: 240_000 },
      async () => {
        const tenant = await newTenant(target());
        const clients = target().nodes.map((node) => tenant.at(node));
        const id = await newSession(tenant);
        for (let round = 0; round < ROUNDS; round += 1) {
          const sender = clients[round % 2] ?? tenant;
          const { cursor } = round % 4 < 2 ? await sender.cancel(id) : await busy(sender, id, round);
          const pages = await Promise.all(
            clients.map(
              async (client) => await client.request({ path: `/v1/sessions/${id}/items?order=desc&limit=20` }),
            ),
          );
          for (const { text } of pages) expect(text).toContain(`"cursor":"${cursor}"`);
        }
      },
    );

    test('a message accepted by one streams at the other', async () => {
      const tenant = await newTenant(target());
      const id = await newSession(tenant);
      const reader = await tenant.at(target().nodes[1]).events(id);
      const { turnId } = await tenant.message(id, 'over there');
      const end = await reader.find(({ event }) => event === 'turn.completed');
      expect(JSON.parse(end.data)).toMatchObject({ turnId, payload: { output: 'echo: over there' } });
      reader.close();
    });

    test('a cancel at one ends the turn that runs at the other', async () => {
      const tenant = await newTenant(target());
      for (const [first, second] of [target().nodes, target().nodes.toReversed()]) {
        if (first === undefined || second === undefined) continue;
        const id = await newSession(tenant);
        const { turnId } = await tenant.at(first).play(id, [{ text: 'late', delayMs: 60_000 }]);
        const receipt = await tenant.at(second).cancel(id, { reason: 'from afar' });
        expect(receipt.turnId).toBe(turnId);
        const end = await tenant.at(first).turnEnd(id, turnId, 10_000);
        expect(end).toMatchObject({ type: 'turn.cancelled', payload: { reason: 'from afar' } });
        // The session takes the next message at once.
        const { turnId: next } = await tenant.at(first).message(id, 'next');
        expect((await tenant.turnEnd(id, next)).type).toBe('turn.completed');
      }
    });

    test('of 20 messages at the same time on both, one becomes a turn and the others name it', async () => {
      const tenant = await newTenant(target());
      const clients = target().nodes.map((node) => tenant.at(node));
      const id = await newSession(tenant);
      const content = JSON.stringify({ fixture: [{ text: 'late', delayMs: 60_000 }] });
      const answers = await Promise.all(
        Array.from(
          { length: 20 },
          async (_, i) => await (clients[i % 2] ?? tenant).command(id, { type: 'message', content }),
        ),
      );
      const won = answers.filter(({ status }) => status === 202);
      const lost = answers.filter(({ status }) => status === 409);
      expect([won.length, lost.length]).toEqual([1, 19]);
      const [{ turnId } = { turnId: '' }] = won.map(({ json }) => json as { turnId: string });
      for (const { json } of lost) expect(json).toMatchObject({ code: 'session_busy', activeTurnId: turnId });
      await tenant.cancel(id);
      await tenant.turnEnd(id, turnId);
    });
  });
}

type Sender = Awaited<ReturnType<typeof newTenant>>;

/** A message while the turn before may still run: whichever of the two commands is accepted has to be in the page. */
async function busy(sender: Sender, id: string, round: number): Promise<{ cursor: string | null }> {
  const answer = await sender.command(id, { type: 'message', content: `round ${round}` });
  if (answer.status === 202) return answer.json as { cursor: string };
  expect(answer.json).toMatchObject({ code: 'session_busy' });
  return await sender.cancel(id);
}
