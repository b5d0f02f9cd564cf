/** The pages in the navigation, with the letter that goes to each after `g`. */
export const PLACES = [
  { to: '/sessions', icon: 'sessions', name: 'Sessions', letter: 's' },
  { to: '/inbox', icon: 'inbox', name: 'Inbox', letter: 'i' },
  { to: '/agents', icon: 'agents', name: 'Agents', letter: 'a' },
  { to: '/usage', icon: 'usage', name: 'Usage', letter: 'u' },
  { to: '/tenant', icon: 'tenant', name: 'Tenant', letter: 't' },
] as const;
