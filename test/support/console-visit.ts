import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { PAGE_MS, startBrowser } from './browser.ts';
import { AdminClient } from './client.ts';
import type { TenantClient } from './client.ts';
import { start } from './example.ts';
import { freePort } from './free-port.ts';
import { startHost } from './host.ts';
import type { Host } from './host.ts';
import { PROGRAM } from './program.ts';

/** Given a directory, each page is put there as a picture. */
const SCREENSHOTS = process.env['CONSOLE_SCREENSHOTS'];

/** The operator of a Host at its console, in a browser, with one tenant chosen. */
export interface ConsoleVisit extends AsyncDisposable {
  readonly host: Host;
  readonly tenant: TenantClient;
  readonly browser: Browser;
  readonly visitor: BrowserContext;
  readonly page: Page;
  readonly url: string;
  /** What a page may not do: throw, break its policy, ask anybody else. */
  readonly wrongs: string[];
  readonly picture: (name: string) => Promise<void>;
}

export async function visitConsole(): Promise<ConsoleVisit> {
  const host = await startHost({
    env: { AGENT_HOST_LISTEN: `127.0.0.1:${await freePort()}`, AGENT_HOST_CONSOLE_LISTEN: '127.0.0.1:0' },
  });
  const tenant = await new AdminClient(host).createTenant();
  const asking = start(process.execPath, [PROGRAM, 'console', '--link'], { AGENT_HOST_DATA_DIR: host.dataDir });
  await asking.ended;
  const link = /http:\S+token=\S+/.exec(asking.said())?.[0] ?? '';
  const url = new URL(link).origin;
  const browser = await startBrowser();
  const visitor = await browser.newContext({ colorScheme: 'light' });
  const wrongs: string[] = [];
  const page = watched(await visitor.newPage(), url, wrongs);
  page.setDefaultTimeout(PAGE_MS);
  await page.goto(link);
  await page.getByRole('heading', { name: 'Sessions', level: 1 }).waitFor();
  return {
    ...{ host, tenant, browser, visitor, page, url, wrongs },
    picture: async (name) => {
      if (SCREENSHOTS === undefined) return;
      await mkdir(SCREENSHOTS, { recursive: true });
      await page.screenshot({ path: join(SCREENSHOTS, `${name}.png`) });
    },
    [Symbol.asyncDispose]: async () => {
      await browser.close();
      await host[Symbol.asyncDispose]();
    },
  };
}

function watched(page: Page, url: string, wrongs: string[]): Page {
  page.on('pageerror', (error) => wrongs.push(String(error)));
  page.on('console', (message) => {
    // What a browser says of each answer that is a refusal.
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource'))
      wrongs.push(message.text());
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(url)) wrongs.push(`asked ${request.url()}`);
  });
  return page;
}
