/** How numbers, times and sizes are written everywhere in the console. */

const WHOLE = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

export function count(value: number): string {
  return WHOLE.format(value);
}

/** 12,345 as 12.3K. */
export function short(value: number): string {
  return value < 10_000 ? WHOLE.format(value) : SHORT.format(value);
}

/** US dollars with as many digits as a small sum needs. */
export function usd(value: number): string {
  if (value === 0) return '$0';
  if (value < 0.0001) return '<$0.0001';
  if (value < 1) return `$${value.toFixed(4)}`;
  return `$${value < 1_000 ? value.toFixed(2) : WHOLE.format(value)}`;
}

export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.floor((ms % 60_000) / 1_000)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function bytes(value: number): string {
  if (value < 1_024) return `${value} B`;
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  let size = value / 1_024;
  let at = 0;
  for (; size >= 1_024 && at < units.length - 1; at++) size /= 1_024;
  return `${size.toFixed(size < 10 ? 1 : 0)} ${units[at]}`;
}

/** How long ago, in one unit. */
export function ago(thenMs: number, nowMs: number): string {
  const seconds = Math.max(0, Math.round((nowMs - thenMs) / 1_000));
  if (seconds < 5) return 'now';
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h ago`;
  return `${Math.floor(seconds / 86_400)} d ago`;
}

const CLOCK = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' });
const FULL = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });

export function clock(iso: string): string {
  return CLOCK.format(new Date(iso));
}

export function dateTime(iso: string): string {
  return FULL.format(new Date(iso));
}
