/** The real thing with some of its methods replaced: for faults, counts and delays. Everything else goes through. */
export function overriding<T extends object>(real: T, changes: Partial<T>): T {
  return new Proxy(real, {
    get: (target, name) => {
      const changed = name in changes;
      const value: unknown = Reflect.get(changed ? changes : target, name, changed ? changes : target);
      return typeof value === 'function' ? (value.bind(changed ? changes : target) as unknown) : value;
    },
  });
}
