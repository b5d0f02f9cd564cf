import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { Page } from 'playwright-core';
import { HAS_CHROMIUM, violationsOf } from '../support/browser.ts';
import type { TenantClient } from '../support/client.ts';
import { visitConsole } from '../support/console-visit.ts';
import type { ConsoleVisit } from '../support/console-visit.ts';

/** What is managed at the console, in a real browser, by somebody with the key of the Host. */
const NARROW = { width: 390, height: 844 };
const WIDE = { width: 1_280, height: 800 };
const HOSTILE = '<img src=x onerror="document.title=1"> \u202Egpj.exe';

describe.runIf(HAS_CHROMIUM)('the pages of the console that manage', () => {
  let visit: ConsoleVisit;
  let page: Page;
  let tenant: TenantClient;

  beforeAll(async () => {
    visit = await visitConsole();
    ({ page, tenant } = visit);
    await page.setViewportSize(WIDE);
  });

  afterEach(() => {
    expect(visit.wrongs.splice(0)).toEqual([]);
  });

  afterAll(async () => {
    await visit?.[Symbol.asyncDispose]();
  });

  async function open(place: string, heading: string): Promise<void> {
    await page.goto(`${visit.url}${place}`);
    await page.getByRole('heading', { name: heading, level: 1 }).waitFor();
  }

  /** Nothing wrong by axe-core in both colours, and no wider than a phone. */
  async function forEverybody(name: string): Promise<void> {
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme });
      expect(await violationsOf(page), `${name}, ${colorScheme}`).toEqual([]);
      await visit.picture(`${name}-${colorScheme}`);
    }
    await page.setViewportSize(NARROW);
    const width = await page.evaluate('document.documentElement.scrollWidth');
    expect(width, `${name} is no wider than a phone`).toBeLessThanOrEqual(NARROW.width);
    await visit.picture(`${name}-phone`);
    await page.setViewportSize(WIDE);
    await page.emulateMedia({ colorScheme: 'light' });
  }

  test('an agent is made, changed with what is wrong shown where it is, compared with what it was, and archived', async () => {
    await tenant.saveAgent('other', { name: HOSTILE });
    await page.keyboard.press('g');
    await page.keyboard.press('a');
    await page.getByRole('heading', { name: 'Agents', level: 1 }).waitFor();
    await page.getByText('onerror=').waitFor();
    await forEverybody('agents');
    await page.getByRole('button', { name: 'New agent' }).click();
    await page.getByLabel('Id', { exact: true }).fill('cook');
    await page.getByText('As the schema of the API wants it.').waitFor();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('heading', { name: 'cook', level: 1 }).waitFor();
    await forEverybody('agent');

    await page.getByRole('link', { name: 'Edit' }).click();
    const editor = page.getByLabel('Definition, as JSON');
    const save = page.getByRole('button', { name: 'Save' });
    const write = async (manifest: unknown): Promise<void> => await editor.fill(JSON.stringify(manifest, null, 2));
    await editor.fill('{ "instructions": ');
    await page.getByText('JSON', { exact: false }).last().waitFor();
    expect(await save.isDisabled()).toBe(true);
    // What the schema says.
    await write({ instructions: 'Cook.', tools: [{ name: 'a b', inputSchema: {} }] });
    await page.locator('#manifest-issues').getByText('tools.0.name').waitFor();
    expect(await save.isDisabled()).toBe(true);
    await forEverybody('agent-edit');
    // What only the Host says.
    await write({ instructions: 'Cook.', colour: 'red' });
    await page.getByText('As the schema of the API wants it.').waitFor();
    await save.click();
    const refusal = page.getByRole('alert');
    await refusal.getByText('invalid_request').waitFor();
    await refusal.getByText('colour').first().waitFor();
    await write({ instructions: `Cook.\n${HOSTILE}`, limits: { maxSteps: 3 } });
    await save.click();

    const change = page.getByRole('region', { name: 'From version 1 to version 2' });
    await change.locator('[data-sign="+"]', { hasText: '"maxSteps": 3' }).waitFor();
    await change.locator('[data-sign="+"]', { hasText: 'onerror=' }).waitFor();
    await change.locator('[data-sign="-"]', { hasText: 'You help the customers' }).waitFor();
    await forEverybody('agent-versions');
    await page.getByLabel('After: version 1').check();
    await page.getByText('The same version').waitFor();
    expect(await tenant.request({ path: '/v1/agents/cook' })).toMatchObject({
      json: { version: 2, manifest: { limits: { maxSteps: 3 } } },
    });

    await page.getByRole('button', { name: 'Archive' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Archive' }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.getByRole('link', { name: 'Definition' }).click();
    await page.getByText('archived', { exact: true }).waitFor();
    await open('/agents', 'Agents');
    await page.getByRole('link', { name: 'other' }).waitFor();
    expect(await page.getByRole('link', { name: 'cook' }).count()).toBe(0);
  });
});
