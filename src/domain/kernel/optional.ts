type Keys<T, Absent, Which extends 'present' | 'absent'> = {
  [K in keyof T]-?: Absent extends T[K] ? (Which extends 'absent' ? K : never) : Which extends 'present' ? K : never;
}[keyof T];

/** Members that may be undefined become members that may be left out. */
type Optional<T> = { [K in Keys<T, undefined, 'present'>]: T[K] } & {
  [K in Keys<T, undefined, 'absent'>]?: Exclude<T[K], undefined>;
};

/** Members that may be null become members that may be left out. */
type WithoutNulls<T> = { [K in Keys<T, null, 'present'>]: T[K] } & {
  [K in Keys<T, null, 'absent'>]?: Exclude<T[K], null>;
};

/** The members that are present: an undefined one is left out, so that what is recorded or sent does not name it. */
export function optional<T extends object>(members: T): Optional<T> {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- exactly what the type says is left
  return without(members, undefined) as Optional<T>;
}

/** The members that have a value: null, which our own states use for "none", is left out. */
export function withoutNulls<T extends object>(members: T): WithoutNulls<T> {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- exactly what the type says is left
  return without(members, null) as WithoutNulls<T>;
}

/** By name: several times for each event of a turn, and lists of entries cost four times as much. */
function without(members: object, absent: null | undefined): object {
  const all: Readonly<Record<string, unknown>> = Object(members);
  const present: Record<string, unknown> = {};
  for (const name of Object.keys(members)) if (all[name] !== absent) present[name] = all[name];
  return present;
}
