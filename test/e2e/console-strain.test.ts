import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { HAS_CHROMIUM, WIDE } from '../support/browser.ts';
import type { TenantClient } from '../support/client.ts';
import { visitConsole } from '../support/console-visit.ts';
import type { ConsoleVisit } from '../support/console-visit.ts';

/** Pages of the console with more than a person reads, and with what is meant to break a page. */
const CALLS = 100;
/** So many of these are more than a page holds. */
const TURNS = 99;
const LONG = { fixture: [{ toolCalls: Array.from({ length: CALLS }, (_, n) => ({ name: 'look', input: { n } })) }] };
const RECORDS_HELD_MAX = 10_000;
/** Each begins and ends within milliseconds. */
const BUSY_TURNS = 60;
/** So long at most, also on a slow machine. */
const WALK_MS = 120_000;
const SLOW_MS = 400_000;
/** A few windows below the first of the records that are held. */
const BACK_FROM_PX = 16_000;
/** A few screens at once: less of a test is waiting for frames. */
const TALL = { width: 1_280, height: 4_000 };
const NODES_MAX = 6_000;
const TEXT_MAX = 300_000;

/**
 * Scrolls a list by less than a window at a time until a record is there, backwards from near its first: the records that
 * were there at each step. More are waited for where it can be scrolled no further.
 */
const WALK = `async (by, until) => {
  const rows = document.querySelector('section[aria-label="Records"]');
  if (by < 0) rows.scrollTop = ${BACK_FROM_PX};
  const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const box = (element) => element.getBoundingClientRect();
  // On a slow machine the rows of a place come some frames after it.
  const isDrawn = () => {
    const [view, all] = [box(rows), box(rows.querySelector('.rows-all'))];
    const drawn = [...rows.querySelectorAll('[data-index]')].map(box);
    const [top, bottom] = [Math.min(...drawn.map((row) => row.top)), Math.max(...drawn.map((row) => row.bottom))];
    return top <= Math.max(view.top, all.top) + 2 && bottom >= Math.min(view.bottom, all.bottom) - 2;
  };
  const windows = [];
  for (const began = performance.now(); performance.now() - began < ${WALK_MS};) {
    const shown = [...rows.querySelectorAll('[data-index]')]
      .map((row) => [Number(row.dataset.index), row.querySelector('[data-event]').dataset.event])
      .toSorted((one, other) => one[0] - other[0]);
    const ids = shown.map((row) => row[1]);
    if (ids.join() !== windows.at(-1)?.ids.join()) windows.push({ ids, last: shown.at(-1)[0] });
    if (ids.includes(until)) break;
    rows.scrollTop += by * (rows.clientHeight - 60);
    do await frame();
    while (!isDrawn() && performance.now() - began < ${WALK_MS});
  }
  return windows;
}`;

interface Shown {
  readonly ids: readonly string[];
  /** Place of the last of them among the records that are held. */
  readonly last: number;
}

describe.runIf(HAS_CHROMIUM)('the console under strain', () => {
  let visit: ConsoleVisit;
  let page: Page;
  let tenant: TenantClient;
  let address: (path: string) => string;

  /** What is not on a page while it is bounded. */
  async function sizes(): Promise<{ nodes: number; text: number }> {
    return (await page.evaluate(
      '({ nodes: document.querySelectorAll("main *").length, text: document.querySelector("main").textContent.length })',
    )) as { nodes: number; text: number };
  }

  async function walk(by: 1 | -1, until = ''): Promise<Shown[]> {
    return (await page.evaluate(`(${WALK})(${by}, ${JSON.stringify(until)})`)) as Shown[];
  }

  beforeAll(async () => {
    visit = await visitConsole();
    ({ page, tenant } = visit);
    address = (path) => `${visit.url}${path}`;
    await tenant.saveAgent('helper', { tools: [{ name: 'look', inputSchema: { type: 'object' } }] });
    await page.setViewportSize(WIDE);
  });

  afterEach(() => {
    expect(visit.wrongs.splice(0)).toEqual([]);
  });

  afterAll(async () => {
    await visit?.[Symbol.asyncDispose]();
  });

  test(
    '10,000 records are read from the first to the last, each once and in order, and few are held',
    async () => {
      await tenant.openSession('long', { agentId: 'helper' });
      const reader = await tenant.events('long');
      const members = { type: 'message', content: JSON.stringify(LONG), whenBusy: 'interrupt' };
      // Each turn ends the one before it, whose calls wait for their executor.
      for (let turn = 0; turn < TURNS; turn++) {
        expect((await tenant.command('long', members)).status).toBe(202);
        for (let offered = 0; offered < CALLS; offered++)
          await reader.find(({ data }) => data.includes('"type":"action.pending"'));
      }
      reader.close();
      const items = (await tenant.items('long')).map(({ eventId }) => eventId);
      expect(items.length).toBeGreaterThan(RECORDS_HELD_MAX);

      const asked: string[] = [];
      const onRequest = (request: { url: () => string }): void => void asked.push(new URL(request.url()).search);
      page.on('request', onRequest);
      await page.goto(address('/sessions/long?view=records'));
      await page.locator(`[data-event="${items.at(-1)}"]`).waitFor();
      page.off('request', onRequest);
      // It opens as one of a hundred records does.
      expect(asked.filter((search) => search.includes('order='))).toEqual(['?order=desc&limit=100']);

      await page.setViewportSize(TALL);
      await page.getByRole('button', { name: 'To the start' }).click();
      await page.locator(`[data-event="${items[0]}"]`).waitFor();
      expect(await page.evaluate('document.querySelector(".rows[aria-label=Records]").scrollTop')).toBe(0);
      const there = await walk(1, items.at(-1));
      expect(placesOf(there, items)).toEqual({ wrong: [], first: 0, last: items.length - 1, gaps: [] });
      // Back at the beginning the pages that were dropped come again. The first window is the one that was left.
      const back = (await walk(-1, items[0])).slice(1);
      expect(back.length).toBeGreaterThan(4);
      expect(placesOf(back.toReversed(), items)).toMatchObject({ wrong: [], first: 0, gaps: [] });
      for (const { ids, last } of [...there, ...back]) {
        expect(last).toBeLessThan(RECORDS_HELD_MAX);
        expect(ids.length).toBeLessThan(250);
      }
      expect((await sizes()).nodes).toBeLessThan(NODES_MAX);
      await page.setViewportSize(WIDE);
    },
    SLOW_MS,
  );

  test('a session in which much happens is read again once a second, and shows what is in the end', async () => {
    await tenant.openSession('busy', { agentId: 'helper' });
    const path = '/sessions/busy';
    await page.goto(address(path));
    await page.getByText('Nothing was said yet').waitFor();
    let reads = 0;
    const onRequest = (request: { url: () => string; method: () => string }): void => {
      if (request.method() === 'GET' && new URL(request.url()).pathname.endsWith(`/v1${path}`)) reads++;
    };
    page.on('request', onRequest);
    const began = performance.now();
    for (let turn = 0; turn < BUSY_TURNS; turn++) {
      expect((await tenant.command('busy', { type: 'message', content: `number ${turn}` })).status).toBe(202);
    }
    await page.getByText(`number ${BUSY_TURNS - 1}`, { exact: true }).waitFor();
    const seconds = (performance.now() - began) / 1_000;
    page.off('request', onRequest);
    // And every five seconds for what it costs.
    expect(reads).toBeLessThanOrEqual(seconds * 1.2 + 3);
    expect(reads).toBeGreaterThan(0);
    await page.locator('.session-head').getByText('idle', { exact: true }).waitFor();
  });

  test('a megabyte, thousands of links, overrides, terminals and nested values leave the page as quick as it was', async () => {
    // As JSON in JSON, which is how it is sent.
    const fill = (part: string) => part.repeat(Math.floor(900_000 / JSON.stringify(JSON.stringify(part)).length));
    let nested: unknown = Array.from({ length: 50_000 }, (_, n) => n);
    for (let depth = 0; depth < 50; depth++) nested = { nested };
    const hostile = {
      line: 'x'.repeat(950_000),
      links: fill('https://a.example/ '),
      overrides: fill('\u202E\u2066'),
      ansi: fill('\u001B[31m!\u001B[0m\u0007'),
      nested,
    };
    await tenant.openSession('hostile', { agentId: 'helper' });
    await page.goto(address('/sessions/hostile'));
    for (const [name, value] of Object.entries(hostile)) {
      const step = typeof value === 'string' ? { text: value } : { toolCalls: [{ name: 'none', input: value }] };
      await tenant.play('hostile', [step]);
      await expect.poll(async () => (await tenant.session('hostile')).status).toBe('idle');
      expect(await sizes(), name).toMatchObject({ nodes: expect.toSatisfy((nodes: number) => nodes < NODES_MAX) });
    }
    const { nodes, text } = await sizes();
    expect(nodes).toBeLessThan(NODES_MAX);
    expect(text).toBeLessThan(TEXT_MAX);
    // As far as a person can go.
    const more = page.getByRole('button', { name: /^Show more/ });
    while ((await more.count()) > 0) await more.first().click();
    await page
      .getByRole('button', { name: /^Copy the whole text/ })
      .first()
      .waitFor();
    const message = page.getByRole('textbox', { name: 'Message' });
    await message.fill('Is it there?');
    await message.press('Control+Enter');
    await page.getByText('echo: Is it there?', { exact: true }).waitFor();
    await page.goto(address('/sessions/hostile?view=records'));
    await page.locator('details.record').first().waitFor();
    expect(await page.locator('details.record pre').count()).toBe(0);
    // All at once: those that are open push others out of the window.
    await page.evaluate('for (const one of document.querySelectorAll("details.record > summary")) one.click()');
    await page.locator('details.record pre').first().waitFor();
    expect((await sizes()).nodes).toBeLessThan(NODES_MAX);
    for (const element of ['main img', 'main iframe', 'main script'])
      expect(await page.locator(element).count(), element).toBe(0);
  });
});

/** Where windows over a list are in it: each must be a part of it without gaps, and begin where the one before it was. */
function placesOf(windows: readonly Shown[], items: readonly string[]) {
  const places = new Map(items.map((id, place) => [id, place]));
  const spans = windows.map(({ ids }) => ids.map((id) => places.get(id) ?? -1));
  const wrong = spans.filter((span) => span.some((place, n) => place !== (span[0] ?? 0) + n));
  const gaps = spans.filter((span, n) => n > 0 && (span[0] ?? 0) > (spans[n - 1]?.at(-1) ?? 0) + 1);
  return { wrong, first: spans[0]?.[0], last: spans.at(-1)?.at(-1), gaps: gaps.map(([first]) => first) };
}
