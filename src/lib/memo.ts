/** A pure function that remembers its results. Once it has `limit` of them it forgets them all: no order is kept. */
export function memoized<V>(limit: number, make: (key: string) => V): (key: string) => V {
  const made = new Map<string, V>();
  return (key) => {
    const known = made.get(key);
    if (known !== undefined) return known;
    if (made.size >= limit) made.clear();
    const value = make(key);
    made.set(key, value);
    return value;
  };
}
