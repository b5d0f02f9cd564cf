const known = new WeakMap<object, number>();

/**
 * How many characters a value has as JSON. It is counted once for each object, which must not change from then on: values
 * that states share, or that outlive many states, cost nothing more.
 */
export function jsonChars(value: object): number {
  const before = known.get(value);
  if (before !== undefined) return before;
  const chars = JSON.stringify(value).length;
  known.set(value, chars);
  return chars;
}
