import { useVirtualizer } from '@tanstack/react-virtual';
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef } from 'react';
import type { ReactNode } from 'react';

interface RowsProps<T> {
  readonly label: string;
  readonly items: readonly T[];
  readonly keyOf: (item: T) => string;
  /** A row is made again when its item, or this, is another one. */
  readonly render: (item: T) => ReactNode;
  /** Pixels of a row that has not been measured. */
  readonly guessPx: number;
  /** Called when the first, or the last, of the items comes near; more than once until more are there. */
  readonly onFirst: () => void;
  readonly onLast: () => void;
  /** Whenever it changes, the list is at its end again. */
  readonly endsAt?: string | undefined;
}

/** Rows outside of the window that are there already: a step of the wheel shows no gap. */
const OVERSCAN = 8;
/** Rows before an end at which more are read. */
const NEAR = 12;
/** Someone this close to the end reads what comes. */
const AT_END_PX = 80;

/**
 * A long list of which only the rows in the window exist. It opens at its end and stays there while more comes; rows that
 * are put before the first move nothing.
 */
export function Rows<T>({ label, items, keyOf, render, guessPx, onFirst, onLast, endsAt }: RowsProps<T>): ReactNode {
  const scroller = useRef<HTMLElement>(null);
  const isPlaced = useRef(false);
  // It is used here only, in a component that nothing memoizes.
  // oxlint-disable-next-line react/incompatible-library
  const rows = useVirtualizer({
    count: items.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => guessPx,
    getItemKey: useCallback(
      (index: number) => {
        const item = items[index];
        return item === undefined ? index : keyOf(item);
      },
      [items, keyOf],
    ),
    overscan: OVERSCAN,
    anchorTo: 'end',
    followOnAppend: true,
    scrollEndThreshold: AT_END_PX,
  });
  const shown = rows.getVirtualItems();
  const first = shown[0]?.index ?? 0;
  const last = shown.at(-1)?.index ?? 0;
  useLayoutEffect(() => {
    if (isPlaced.current || items.length === 0) return;
    isPlaced.current = true;
    rows.scrollToEnd();
  }, [rows, items.length]);
  useLayoutEffect(() => {
    if (isPlaced.current && endsAt !== undefined) rows.scrollToEnd();
  }, [rows, endsAt]);
  useEffect(() => {
    if (!isPlaced.current || items.length === 0) return;
    if (first < NEAR) onFirst();
    if (last >= items.length - NEAR) onLast();
  }, [first, last, items.length, onFirst, onLast]);
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

function Row<T>({ item, render }: Pick<RowsProps<T>, 'render'> & { readonly item: T }): ReactNode {
  return useMemo(() => render(item), [item, render]);
}
