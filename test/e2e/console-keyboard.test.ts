import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { HAS_CHROMIUM } from '../support/browser.ts';
import { visitConsole } from '../support/console-visit.ts';
import type { ConsoleVisit } from '../support/console-visit.ts';
import { walkByKeyboard } from '../support/keyboard.ts';

/** What the focus is in while a dialog holds it. */
const IN_DIALOG = 'document.activeElement.closest("[role=dialog], [data-base-ui-focus-guard]") !== null';

describe.runIf(HAS_CHROMIUM)('the console without a mouse', () => {
  let visit: ConsoleVisit;
  let page: Page;

  beforeAll(async () => {
    visit = await visitConsole();
    page = visit.page;
    const { tenant } = visit;
    await tenant.saveAgent('helper', { tools: [{ name: 'pay', inputSchema: { type: 'object' }, approval: 'always' }] });
    await tenant.openSession('payment', { agentId: 'helper' });
    await tenant.play('payment', [{ toolCalls: [{ name: 'pay', input: { amount: 5 } }] }]);
  });

  afterEach(() => {
    expect(visit.wrongs.splice(0)).toEqual([]);
  });

  afterAll(async () => {
    await visit?.[Symbol.asyncDispose]();
  });

  test('each page is walked by keyboard: the focus is seen, in order, and not held', async () => {
    for (const place of [
      '/sessions',
      '/sessions/payment',
      '/sessions/payment?view=records',
      '/sessions/payment?view=moment',
      '/inbox',
    ]) {
      await page.goto(`${visit.url}${place}`);
      await page.getByRole('heading', { level: 1 }).waitFor();
      if (place !== '/sessions') await page.getByText('pay', { exact: true }).first().waitFor();
      const { stops, wrongs } = await walkByKeyboard(page);
      expect(wrongs, place).toEqual([]);
      expect(stops[0]).toBe('Skip to the page');
      expect(stops.length, place).toBeGreaterThan(8);
    }
  });

  test('a dialog holds the focus and gives it back, and nothing moves for who does not want it', async () => {
    await page.emulateMedia({ reducedMotion: 'reduce' });
    await page.goto(`${visit.url}/sessions/payment`);
    await page.getByText('Waits for your approval').waitFor();
    expect(await page.evaluate('document.getAnimations().length')).toBe(0);
    // What a screen reader is told.
    expect(await page.getByRole('status').allInnerTexts()).toContain('The turn waits for a person.');
    const opener = page.locator('.composer').getByRole('button', { name: 'As code' });
    await opener.focus();
    await opener.press('Enter');
    const dialog = page.getByRole('dialog');
    await dialog.waitFor();
    // At its edges the focus is led back a moment later.
    for (let tab = 0; tab < 12; tab++) {
      await expect.poll(async () => await page.evaluate(IN_DIALOG)).toBe(true);
      await page.keyboard.press('Tab');
    }
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'detached' });
    await expect.poll(async () => await page.evaluate('document.activeElement.textContent')).toBe('As code');
    await page.emulateMedia({ reducedMotion: null });
  });

  test('? tells the keys, which lead about, and are letters where something is written', async () => {
    await page.goto(`${visit.url}/sessions/payment`);
    await page.getByText('Waits for your approval').waitFor();
    await page.keyboard.press('?');
    const dialog = page.getByRole('dialog');
    await dialog.waitFor();
    const keys = (await dialog.locator('dt').allInnerTexts()).map((text) => text.replaceAll(/\s+/g, ' '));
    expect(keys).toEqual(expect.arrayContaining(['/', 'g s', 'g i', '?']));
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'detached' });
    await page.keyboard.press('/');
    const message = page.getByRole('textbox', { name: 'Message' });
    await page.keyboard.type('?gs/');
    expect(await message.inputValue()).toBe('?gs/');
    await message.blur();
    await page.keyboard.press('g');
    await page.keyboard.press('s');
    await page.getByRole('heading', { name: 'Sessions', level: 1 }).waitFor();
  });
});
