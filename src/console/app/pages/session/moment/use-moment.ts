import { getRouteApi, useNavigate } from '@tanstack/react-router';
import { useEffect, useMemo, useState } from 'react';
import type { EventRecord } from '../../../../../client/client.ts';

const route = getRouteApi('/sessions/$sessionId');

/** Browsers refuse addresses that change many times a second. */
const ADDRESS_MS = 250;

/** The chosen record, which the address keeps; none, or one that is not held: the newest that is. */
export function useMoment(records: readonly EventRecord[]): {
  readonly place: number;
  readonly select: (place: number) => void;
} {
  const navigate = useNavigate();
  const given = route.useSearch().at;
  const [at, setAt] = useState(given);
  const place = useMemo(() => {
    const found = at === undefined ? -1 : records.findIndex(({ cursor }) => cursor === at);
    return found < 0 ? records.length - 1 : found;
  }, [records, at]);
  useEffect(() => {
    if (at === given) return undefined;
    const timer = setTimeout(() => {
      void navigate({ from: '/sessions/$sessionId', search: (before) => ({ ...before, at }), replace: true });
    }, ADDRESS_MS);
    return () => clearTimeout(timer);
  }, [at, given, navigate]);
  return { place, select: (next) => setAt(records[next]?.cursor) };
}

/** A value once it has stayed the same for a moment: what is asked of the Host does not follow each step of the slider. */
export function useSettled<T>(value: T): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ADDRESS_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}
