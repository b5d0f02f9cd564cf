import { useNavigate } from '@tanstack/react-router';
import { useEffect, useRef, useState } from 'react';
import type { ReactNode } from 'react';
import { Button } from './parts/button.tsx';
import { Dialog } from './parts/dialog.tsx';
import { usePlaces } from './places.ts';

/** Between `g` and the letter of a page. */
const SECOND_KEY_MS = 1_500;

/** Keys that write, or belong to something that has the focus, are not ours. */
function isForPage(event: KeyboardEvent): boolean {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return false;
  const { target } = event;
  if (!(target instanceof HTMLElement)) return true;
  return !target.isContentEditable && target.closest('input, textarea, select, [role="dialog"]') === null;
}

/** `/` finds, `g` and a letter goes to a page, `?` lists the keys. */
export function Shortcuts(): ReactNode {
  const navigate = useNavigate();
  const places = usePlaces();
  const [isOpen, setOpen] = useState(false);
  const goneMs = useRef(0);
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (!isForPage(event)) return;
      const isSecond = performance.now() - goneMs.current < SECOND_KEY_MS;
      goneMs.current = 0;
      const place = places.find(({ letter }) => letter === event.key);
      if (isSecond && place !== undefined) void navigate({ to: place.to });
      else if (event.key === 'g') goneMs.current = performance.now();
      else if (event.key === '?') setOpen(true);
      else if (event.key === '/') document.querySelector<HTMLElement>('[data-search]')?.focus();
      else return;
      event.preventDefault();
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, [navigate, places]);
  return (
    <Dialog title="Keys" isOpen={isOpen} onClose={() => setOpen(false)}>
      <dl className="keys">
        <dt>
          <kbd>/</kbd>
        </dt>
        <dd>Find on this page, or write the message of a session</dd>
        {places.map(({ letter, name }) => (
          <KeyLine key={letter} name={name} second={letter} />
        ))}
        <dt>
          <kbd>Ctrl</kbd> <kbd>Enter</kbd>
        </dt>
        <dd>Send what was written</dd>
        <dt>
          <kbd>←</kbd> <kbd>→</kbd>
        </dt>
        <dd>One record back or on, at the time slider</dd>
        <dt>
          <kbd>?</kbd>
        </dt>
        <dd>This list</dd>
      </dl>
      <div className="dialog-foot">
        <Button onClick={() => setOpen(false)}>Close</Button>
      </div>
    </Dialog>
  );
}

function KeyLine({ name, second }: { readonly name: string; readonly second: string }): ReactNode {
  return (
    <>
      <dt>
        <kbd>g</kbd> <kbd>{second}</kbd>
      </dt>
      <dd>{name}</dd>
    </>
  );
}
