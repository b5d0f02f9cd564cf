/** Which credential a person signs in for, while the browser is at the server's own pages: this tab only, and no secret. */
export interface SignInPlace {
  readonly vaultId: string;
  readonly credentialId: string;
}

const KEY = 'agent-host-signs-in-for';
/** The page that servers send the browser back to. */
const PATH = '/signed-in';

export function returnAddress(): string {
  return `${location.origin}${PATH}`;
}

export function keepPlace(place: SignInPlace): void {
  sessionStorage.setItem(KEY, JSON.stringify(place));
}

/** What was kept, once. */
export function takePlace(): SignInPlace | null {
  const kept = sessionStorage.getItem(KEY);
  sessionStorage.removeItem(KEY);
  if (kept === null) return null;
  const place: SignInPlace = JSON.parse(kept);
  return place;
}
