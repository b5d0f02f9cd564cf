import { Link, Outlet, useRouterState } from '@tanstack/react-router';
import { useState } from 'react';
import type { ReactNode } from 'react';
import { signOut } from './api/door.ts';
import { useHost } from './api/host.tsx';
import { useInbox } from './api/inbox.ts';
import { count } from './lib/format.ts';
import { savedScheme, saveScheme } from './lib/scheme.ts';
import type { Scheme } from './lib/scheme.ts';
import { Button } from './parts/button.tsx';
import { Icon } from './parts/icon.tsx';
import type { IconName } from './parts/icon.tsx';
import { usePlaces } from './places.ts';
import { Shortcuts } from './shortcuts.tsx';

/** Navigation beside the page; on a narrow screen above it, behind a button. */
export function Shell(): ReactNode {
  const [isOpen, setOpen] = useState(false);
  const places = usePlaces();
  const path = useRouterState({ select: (state) => state.location.pathname });
  return (
    <div className="shell">
      <a className="skip" href="#main">
        Skip to the page
      </a>
      <header className="side" data-open={isOpen ? '' : undefined}>
        <div className="side-top">
          <Link to="/sessions" className="brand">
            <Mark />
            Agent Host
          </Link>
          <Button
            kind="quiet"
            className="menu-button"
            aria-expanded={isOpen}
            aria-label="Menu"
            onClick={() => setOpen(!isOpen)}
          >
            <Icon name="menu" />
          </Button>
        </div>
        <nav className="nav" aria-label="Pages">
          {places.map(({ to, icon, name }) => (
            <Link
              key={to}
              to={to}
              onClick={() => setOpen(false)}
              aria-current={path.startsWith(to) ? 'page' : undefined}
            >
              <Icon name={icon} />
              {name}
              {to === '/inbox' && <InboxCount />}
            </Link>
          ))}
        </nav>
        <SideFoot />
      </header>
      <main className="main" id="main" tabIndex={-1}>
        <Outlet />
      </main>
      <Shortcuts />
    </div>
  );
}

/** How much waits for a person; nothing while nothing does. */
function InboxCount(): ReactNode {
  const { data } = useInbox();
  const waits = data?.pages.flatMap(({ interactions }) => interactions).length ?? 0;
  if (waits === 0) return null;
  return (
    <span className="badge spread">
      {count(waits)}
      {data?.pages.at(-1)?.nextCursor === null ? '' : '+'}
      <span className="hidden"> waiting</span>
    </span>
  );
}

const SCHEMES: readonly { readonly scheme: Scheme; readonly icon: IconName; readonly name: string }[] = [
  { scheme: 'auto', icon: 'auto', name: 'Colours of the system' },
  { scheme: 'light', icon: 'sun', name: 'Light' },
  { scheme: 'dark', icon: 'moon', name: 'Dark' },
];

function SideFoot(): ReactNode {
  const { door, setDoor, onSignedOut } = useHost();
  const [scheme, setScheme] = useState(savedScheme);
  const choose = (next: Scheme): void => {
    saveScheme(next);
    setScheme(next);
  };
  const leave = async (): Promise<void> => {
    await signOut(door.csrf);
    onSignedOut();
  };
  return (
    <div className="side-foot">
      <div>
        <div className="muted">Tenant</div>
        <bdi title={door.tenant ?? ''}>{door.tenant}</bdi>
        {door.host && (
          <Button isSmall kind="quiet" onClick={() => setDoor({ ...door, tenant: null })}>
            Another tenant
          </Button>
        )}
      </div>
      <fieldset className="row" aria-label="Colours">
        {SCHEMES.map(({ scheme: one, icon, name: label }) => (
          <Button
            key={one}
            isSmall
            kind="quiet"
            aria-pressed={scheme === one}
            aria-label={label}
            title={label}
            onClick={() => choose(one)}
          >
            <Icon name={icon} />
          </Button>
        ))}
        <Button isSmall kind="quiet" className="spread" onClick={() => void leave().catch(onSignedOut)}>
          <Icon name="out" />
          Sign out
        </Button>
      </fieldset>
    </div>
  );
}

function Mark(): ReactNode {
  return (
    <svg viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" fill="var(--accent-strong)" />
      <path d="M9 10h14M9 16h9M9 22h5" stroke="#fff" strokeWidth="2.6" strokeLinecap="round" />
      <circle cx="22.5" cy="21" r="3" fill="#9be3d6" />
    </svg>
  );
}
