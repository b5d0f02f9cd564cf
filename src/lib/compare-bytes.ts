/**
 * Orders texts by their UTF-8 bytes, as Postgres does in its collation "C". The operator `<` orders by UTF-16, which
 * puts what is beyond the first 65,536 characters elsewhere.
 */
export function compareBytes(a: string, b: string): number {
  return a === b ? 0 : Buffer.compare(Buffer.from(a), Buffer.from(b));
}
