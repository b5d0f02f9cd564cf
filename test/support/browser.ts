import { existsSync } from 'node:fs';
import axe from 'axe-core';
import { chromium } from 'playwright-core';
import type { Browser, Page } from 'playwright-core';
import { expect } from 'vitest';

/** Where Debian's package chromium-headless-shell puts it. */
const CHROMIUM = '/usr/bin/chromium-headless-shell';

export const HAS_CHROMIUM = existsSync(CHROMIUM);
if (!HAS_CHROMIUM)
  process.stdout.write('browser tests are skipped: apt-get install chromium-headless-shell installs what they need\n');

/** A browser without a window. */
export async function startBrowser(): Promise<Browser> {
  // As root it has no sandbox of its own; it visits pages of this test only.
  return await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
}

/** A violation of the rules for people who use a page with other senses or by keyboard, and where. */
interface Violation {
  readonly id: string;
  readonly nodes: readonly { readonly target: readonly unknown[]; readonly failureSummary?: string }[];
}

/** What axe-core finds wrong with what a page shows now, by all of its rules or one: `<rule>: <place>: <why>`. */
export async function violationsOf(page: Page, rule?: 'color-contrast'): Promise<string[]> {
  // Through the debugger, which the policy of the page does not hold for.
  if ((await page.evaluate('typeof axe')) === 'undefined') await page.evaluate(axe.source);
  const options = rule === undefined ? {} : { runOnly: [rule] };
  const asked = `axe.run(document, ${JSON.stringify(options)})`;
  const { violations } = (await page.evaluate(asked)) as { violations: readonly Violation[] };
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(
      ({ target, failureSummary = '' }) => `${id}: ${target.join(' ')}: ${failureSummary.replaceAll('\n', ' ')}`,
    ),
  );
}

/** How long a page may take for what is waited for. */
export const PAGE_MS = 60_000;

/** A phone, and the window of a desk. */
const NARROW = { width: 390, height: 844 };
export const WIDE = { width: 1_280, height: 800 };

/**
 * Expects that a page is for everybody: nothing wrong by axe-core, colours that can be read also in the dark, and no wider
 * than a phone. Colours are all that the schemes differ in.
 */
export async function expectForEverybody(
  page: Page,
  name: string,
  picture: (name: string) => Promise<void>,
): Promise<void> {
  expect(await violationsOf(page), `${name}, light`).toEqual([]);
  await picture(`${name}-light`);
  await page.emulateMedia({ colorScheme: 'dark' });
  expect(await violationsOf(page, 'color-contrast'), `${name}, dark`).toEqual([]);
  await picture(`${name}-dark`);
  await page.setViewportSize(NARROW);
  const width = await page.evaluate('document.documentElement.scrollWidth');
  expect(width, `${name} is no wider than a phone`).toBeLessThanOrEqual(NARROW.width);
  await picture(`${name}-phone`);
  await page.setViewportSize(WIDE);
  await page.emulateMedia({ colorScheme: 'light' });
}
