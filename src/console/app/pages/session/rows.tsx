import { measureElement, useVirtualizer } from '@tanstack/react-virtual';
import type { Virtualizer } from '@tanstack/react-virtual';
import { useCallback, useDeferredValue, useEffect, useLayoutEffect, useMemo, useRef } from 'react';
import type { ReactNode, RefObject } from 'react';
import type { Opened } from '../../api/session-feed.ts';

interface RowsProps<T> {
  readonly label: string;
  readonly items: readonly T[];
  readonly keyOf: (item: T) => string;
  /** A row is made again when its item, or this, is another one. */
  readonly render: (item: T) => ReactNode;
  /** Rows of a kind are mostly as high as each other. */
  readonly kindOf: (item: T) => string;
  /** Pixels of a row of whose kind none has been measured. */
  readonly guessPx: number;
  /** Called when the first, or the last, of the items comes near; more than once until more are there. Absent: never. */
  readonly onFirst: (() => void) | undefined;
  readonly onLast: (() => void) | undefined;
  /** Called when someone takes hold of the list. */
  readonly onUse?: (() => void) | undefined;
  /** Whenever it is another one, the list is at its start or its end again. */
  readonly opened?: Opened | undefined;
  /** More are read when its end comes near, and do not come by themselves: someone at its end reads on there. */
  readonly hasMore?: boolean | undefined;
  /** Whenever it changes, the list is at its end again. */
  readonly endsAt?: string | undefined;
}

/** Rows outside of the window that are there already: a step of the wheel shows no gap. */
const OVERSCAN = 8;
/** Rows before an end at which more are read. */
const NEAR = 12;
/** Someone this close to the end reads what comes. */
const AT_END_PX = 80;
const AT_END: Opened = { at: 'end' };
/** What scrolls a list begins with one of these. */
const USES = ['wheel', 'touchmove', 'pointerdown', 'keydown'] as const;

/**
 * A long list of which only the rows in the window exist. It stays at its end while more comes; rows that are put before the
 * first move nothing.
 */
export function Rows<T>(props: RowsProps<T>): ReactNode {
  const { label, items, keyOf, render, onFirst, onLast, onUse, opened = AT_END } = props;
  const { hasMore = false, endsAt } = props;
  const scroller = useRef<HTMLElement>(null);
  const placed = useRef<Opened>(null);
  const isOnItsWay = useRef(false);
  // As it was before the items that are there now: the last page, too, is read from its beginning.
  const follows = useDeferredValue(!hasMore);
  // It is used here only, in a component that nothing memoizes.
  // oxlint-disable-next-line react/incompatible-library
  const rows = useVirtualizer<HTMLElement, HTMLElement>({
    count: items.length,
    getScrollElement: () => scroller.current,
    ...useHeights(props),
    getItemKey: useCallback(
      (index: number) => {
        const item = items[index];
        return item === undefined ? index : keyOf(item);
      },
      [items, keyOf],
    ),
    overscan: OVERSCAN,
    anchorTo: 'end',
    followOnAppend: follows,
    scrollEndThreshold: AT_END_PX,
  });
  const shown = rows.getVirtualItems();
  const first = shown[0]?.index ?? 0;
  const last = shown.at(-1)?.index ?? 0;
  useLayoutEffect(() => {
    if (placed.current === opened || items.length === 0) return;
    placed.current = opened;
    isOnItsWay.current = true;
    if (opened.at === 'start') rows.scrollToOffset(0);
    else rows.scrollToEnd();
  }, [rows, items.length, opened]);
  useLayoutEffect(() => {
    if (placed.current !== null && endsAt !== undefined) rows.scrollToEnd();
  }, [rows, endsAt]);
  useEffect(() => {
    if (placed.current !== opened || items.length === 0) return;
    // Rows on the way to the place where it opens are not those that somebody reads.
    if (isOnItsWay.current && !(opened.at === 'end' ? rows.isAtEnd(AT_END_PX) : first === 0)) return;
    isOnItsWay.current = false;
    if (first < NEAR) onFirst?.();
    if (last >= items.length - NEAR) onLast?.();
  }, [rows, first, last, items.length, opened, onFirst, onLast]);
  useUse(scroller, onUse);
  return (
    // A scrolling region has to be reachable by keyboard.
    // oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex
    <section className="rows" aria-label={label} tabIndex={0} ref={scroller}>
      <div className="rows-all" style={{ height: rows.getTotalSize() }}>
        {shown.map(({ index, key, start }) => {
          const item = items[index];
          return (
            <div
              key={key}
              className="rows-row"
              data-index={index}
              ref={rows.measureElement}
              style={{ transform: `translateY(${start}px)` }}
            >
              {item === undefined ? null : <Row item={item} render={render} />}
            </div>
          );
        })}
      </div>
    </section>
  );
}

/**
 * Guesses the height of a row by the last one of its kind that came. A guess that is right costs nothing, while each that
 * is wrong moves what is after it: with hundreds of rows a second that was most of what it took to add them.
 */
function useHeights<T>({ items, kindOf, guessPx }: Pick<RowsProps<T>, 'items' | 'kindOf' | 'guessPx'>) {
  const heights = useRef(new Map<string, number>());
  return {
    estimateSize: (index: number): number => {
      const item = items[index];
      return (item === undefined ? undefined : heights.current.get(kindOf(item))) ?? guessPx;
    },
    measureElement: (
      element: HTMLElement,
      entry: ResizeObserverEntry | undefined,
      instance: Virtualizer<HTMLElement, HTMLElement>,
    ): number => {
      const index = instance.indexFromElement(element);
      const item = items[index];
      // One that comes for the first time is closed; one that was there before has the height that it had, opened or not.
      const isFirst = entry === undefined && !instance.itemSizeCache.has(instance.options.getItemKey(index));
      const height = measureElement(element, entry, instance);
      if (isFirst && item !== undefined) heights.current.set(kindOf(item), height);
      return height;
    },
  };
}

function useUse(scroller: RefObject<HTMLElement | null>, onUse: (() => void) | undefined): void {
  useEffect(() => {
    const list = scroller.current;
    if (list === null || onUse === undefined) return undefined;
    for (const kind of USES) list.addEventListener(kind, onUse, { passive: true });
    return () => USES.forEach((kind) => list.removeEventListener(kind, onUse));
  }, [scroller, onUse]);
}

function Row<T>({ item, render }: Pick<RowsProps<T>, 'render'> & { readonly item: T }): ReactNode {
  return useMemo(() => render(item), [item, render]);
}
