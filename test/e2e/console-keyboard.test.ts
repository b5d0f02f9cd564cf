import { expect, test } from 'vitest';
import { HAS_CHROMIUM } from '../support/browser.ts';
import { visitConsole } from '../support/console-visit.ts';
import { walkByKeyboard } from '../support/keyboard.ts';

test.runIf(HAS_CHROMIUM)('each page is walked by keyboard: the focus is seen, in order, and not held', async () => {
  await using visit = await visitConsole();
  const { page, tenant, url, wrongs } = visit;
  await tenant.saveAgent('helper', { tools: [{ name: 'pay', inputSchema: { type: 'object' }, approval: 'always' }] });
  await tenant.openSession('payment', { agentId: 'helper' });
  await tenant.play('payment', [{ toolCalls: [{ name: 'pay', input: { amount: 5 } }] }]);
  for (const place of [
    '/sessions',
    '/sessions/payment',
    '/sessions/payment?view=records',
    '/sessions/payment?view=moment',
    '/inbox',
  ]) {
    await page.goto(`${url}${place}`);
    await page.getByRole('heading', { level: 1 }).waitFor();
    if (place !== '/sessions') await page.getByText('pay', { exact: true }).first().waitFor();
    const walk = await walkByKeyboard(page);
    expect(walk.wrongs, place).toEqual([]);
    expect(walk.stops[0]).toBe('Skip to the page');
    expect(walk.stops.length, place).toBeGreaterThan(8);
  }
  expect(wrongs).toEqual([]);
});
