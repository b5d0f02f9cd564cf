/** No provider means longer than a day; the turn's own deadline comes first anyway. */
const RETRY_AFTER_MS_MAX = 86_400_000;

/**
 * The least delay that a provider asks for, ms: `retry-after-ms`, else `retry-after` in seconds or as an HTTP date
 * (RFC 9110, section 10.2.3), else the `retryDelay` of Google's error details or what OpenAI says in words, "try again in
 * 1m2.5s", which in a stream is all there is. 0 when it asks for none that is readable.
 */
export function retryAfterMs(headers: Readonly<Record<string, string>>, body: string, nowMs: number): number {
  const found =
    ofNumber(headers['retry-after-ms'], 1) ??
    ofNumber(headers['retry-after'], 1_000) ??
    ofDate(headers['retry-after'], nowMs) ??
    ofNumber(/"retryDelay"\s*:\s*"(\d{1,9}(?:\.\d{1,9})?)s"/.exec(body)?.[1], 1_000) ??
    ofWords(body) ??
    0;
  return Math.min(Math.max(0, Math.ceil(found)), RETRY_AFTER_MS_MAX);
}

function ofNumber(text: string | undefined, unitMs: number): number | null {
  return text !== undefined && /^\s*\d{1,12}(\.\d{1,9})?\s*$/.test(text) ? Number(text) * unitMs : null;
}

const UNITS_MS: Readonly<Record<string, number>> = { h: 3_600_000, m: 60_000, s: 1_000, ms: 1 };

function ofWords(body: string): number | null {
  const said = /try again in ((?:\d{1,9}(?:\.\d{1,9})?(?:ms|[hms])){1,4})/i.exec(body)?.[1];
  if (said === undefined) return null;
  const parts = [...said.matchAll(/([\d.]+)(ms|[hms])/g)];
  return parts.reduce((sum, [, count, unit = '']) => sum + Number(count) * (UNITS_MS[unit] ?? 0), 0);
}

function ofDate(text: string | undefined, nowMs: number): number | null {
  const at = text !== undefined && /^[A-Za-z]{3}/.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(at) ? null : at - nowMs;
}
