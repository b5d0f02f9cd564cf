import { existsSync } from 'node:fs';
import axe from 'axe-core';
import { chromium } from 'playwright-core';
import type { Browser, Page } from 'playwright-core';

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

/** What axe-core finds wrong with what a page shows now: `<rule>: <place>: <why>`. */
export async function violationsOf(page: Page): Promise<string[]> {
  // Through the debugger, which the policy of the page does not hold for.
  await page.evaluate(axe.source);
  const { violations } = (await page.evaluate('axe.run(document)')) as { violations: readonly Violation[] };
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(
      ({ target, failureSummary = '' }) => `${id}: ${target.join(' ')}: ${failureSummary.replaceAll('\n', ' ')}`,
    ),
  );
}
