import type { Page } from 'playwright-core';

/** So many keys until a page is taken for one that does not let go. */
const STOPS_MAX = 150;

/** What the focus is on: null is the page itself, which it comes to after the last stop. */
const STOP = `(() => {
  const at = document.activeElement;
  if (at === null || at === document.body) return null;
  const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(at);
  const { width, height, bottom, right } = at.getBoundingClientRect();
  window.stops ??= [];
  const before = window.stops.at(-1);
  const isFirst = window.stops.includes(at);
  window.stops.push(at);
  return {
    name: at.getAttribute('aria-label') ?? (at.textContent || at.tagName).trim().slice(0, 40),
    isAgain: isFirst,
    isSeen: (outlineStyle !== 'none' && parseFloat(outlineWidth) > 0) || boxShadow !== 'none',
    isThere: width > 0 && height > 0 && bottom > 0 && right > 0,
    isInOrder: before === undefined || isFirst ||
      (before.compareDocumentPosition(at) & Node.DOCUMENT_POSITION_FOLLOWING) !== 0,
  };
})()`;

interface Stop {
  readonly name: string;
  readonly isAgain: boolean;
  readonly isSeen: boolean;
  readonly isThere: boolean;
  readonly isInOrder: boolean;
}

/**
 * Goes through a page by the Tab key, from its beginning until it begins again: the names of the stops, and what is wrong
 * with them: a focus that is not seen, an order that is not that of the page, a place that it does not leave.
 */
export async function walkByKeyboard(page: Page): Promise<{ readonly stops: string[]; readonly wrongs: string[] }> {
  await page.evaluate('document.activeElement?.blur(); window.stops = [];');
  const stops: string[] = [];
  const wrongs: string[] = [];
  while (stops.length < STOPS_MAX) {
    await page.keyboard.press('Tab');
    const stop = (await page.evaluate(STOP)) as Stop | null;
    if (stop === null || stop.isAgain) {
      if (stop !== null && stop.name !== stops[0]) wrongs.push(`${stop.name} does not let go`);
      return { stops, wrongs };
    }
    stops.push(stop.name);
    if (!stop.isSeen) wrongs.push(`${stop.name}: the focus is not seen`);
    if (!stop.isThere) wrongs.push(`${stop.name}: it is not on the page`);
    if (!stop.isInOrder) wrongs.push(`${stop.name}: it comes too late`);
  }
  return { stops, wrongs: [...wrongs, `more than ${STOPS_MAX} stops`] };
}
