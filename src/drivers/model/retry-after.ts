/** No provider means longer than a day; the turn's own deadline comes first anyway. */
const RETRY_AFTER_MS_MAX = 86_400_000;

/**
 * The least delay that a provider asks for, ms: `retry-after-ms`, else `retry-after` in seconds or as an HTTP date
 * (RFC 9110, section 10.2.3), else the `retryDelay` of Google's error details. 0 when it asks for none that is readable.
 */
export function retryAfterMs(headers: Readonly<Record<string, string>>, body: string, nowMs: number): number {
  const found =
    ofNumber(headers['retry-after-ms'], 1) ??
    ofNumber(headers['retry-after'], 1_000) ??
    ofDate(headers['retry-after'], nowMs) ??
    ofNumber(/"retryDelay"\s*:\s*"(\d{1,9}(?:\.\d{1,9})?)s"/.exec(body)?.[1], 1_000) ??
    0;
  return Math.min(Math.max(0, Math.ceil(found)), RETRY_AFTER_MS_MAX);
}

function ofNumber(text: string | undefined, unitMs: number): number | null {
  return text !== undefined && /^\s*\d{1,12}(\.\d{1,9})?\s*$/.test(text) ? Number(text) * unitMs : null;
}

function ofDate(text: string | undefined, nowMs: number): number | null {
  const at = text !== undefined && /^[A-Za-z]{3}/.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(at) ? null : at - nowMs;
}
