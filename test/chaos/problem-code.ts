import type { Answer } from '../support/client.ts';

/** The code of a refusal, as its body names it. */
export function problemCode({ status, json }: Answer): string {
  const code: unknown = Reflect.get(Object(json), 'code');
  return typeof code === 'string' ? code : String(status);
}
