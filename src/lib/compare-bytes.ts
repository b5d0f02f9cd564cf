/**
 * Orders texts by the bytes of their UTF-8, as Postgres does in its collation "C". The operator `<` orders by UTF-16,
 * which puts what lies beyond the first 65,536 characters elsewhere.
 */
export function compareBytes(a: string, b: string): number {
  return a === b ? 0 : Buffer.compare(Buffer.from(a), Buffer.from(b));
}
