'use client';
import { useMemo, useSyncExternalStore } from 'react';
import type { Client } from '../client/client.ts';
import { EMPTY, SessionStore } from './session-store.ts';
import type { SessionActions, SessionSnapshot } from './session-store.ts';

export type { Interaction, SessionActions, SessionSnapshot } from './session-store.ts';

export interface UseSessionOptions {
  /** How many events are kept for showing; default 10,000. */
  readonly eventsMax?: number | undefined;
}

/** A session as it is now, and what can be done with it. */
export interface UseSession extends SessionSnapshot, SessionActions {}

const EVENTS_MAX = 10_000;

/**
 * Shows a session live: its history, then each record as it happens, in order and once, over connections that are cut. The stream
 * ends when the component unmounts, or shows another session. On a server, the session is loading and has no events.
 * @param client the same object in every rendering: make it outside of the component, or keep it with `useMemo`
 */
export function useSession(client: Client, sessionId: string, options: UseSessionOptions = {}): UseSession {
  const { eventsMax = EVENTS_MAX } = options;
  const store = useMemo(() => new SessionStore(client.session(sessionId), eventsMax), [client, sessionId, eventsMax]);
  const snapshot = useSyncExternalStore(store.subscribe, store.snapshot, emptySnapshot);
  return useMemo(() => ({ ...snapshot, ...store.actions }), [snapshot, store]);
}

function emptySnapshot(): SessionSnapshot {
  return EMPTY;
}
