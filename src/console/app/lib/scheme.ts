export type Scheme = 'auto' | 'light' | 'dark';

const KEY = 'agent-host-scheme';

/** What was chosen before; `auto`: as the system. */
export function savedScheme(): Scheme {
  const saved = localStorage.getItem(KEY);
  return saved === 'light' || saved === 'dark' ? saved : 'auto';
}

export function applyScheme(scheme: Scheme): void {
  if (scheme === 'auto') delete document.documentElement.dataset['scheme'];
  else document.documentElement.dataset['scheme'] = scheme;
}

export function saveScheme(scheme: Scheme): void {
  if (scheme === 'auto') localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, scheme);
  applyScheme(scheme);
}
