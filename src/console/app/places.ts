import { useHost } from './api/host.tsx';

/** The pages in the navigation, with the letter that goes to each after `g`. */
const PLACES = [
  { to: '/sessions', icon: 'sessions', name: 'Sessions', letter: 's' },
  { to: '/inbox', icon: 'inbox', name: 'Inbox', letter: 'i' },
  { to: '/agents', icon: 'agents', name: 'Agents', letter: 'a' },
  { to: '/usage', icon: 'usage', name: 'Usage', letter: 'u' },
  { to: '/tenant', icon: 'tenant', name: 'Tenant', letter: 't' },
  { to: '/host', icon: 'host', name: 'Host', letter: 'h' },
] as const;
const OF_TENANT = PLACES.filter(({ to }) => to !== '/host');

/** The whole Host is shown to those who have its key. */
export function usePlaces(): readonly (typeof PLACES)[number][] {
  return useHost().door.host ? PLACES : OF_TENANT;
}
