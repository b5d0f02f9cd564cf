/** A released version; a pre-release sorts before its release. */
export interface Version {
  readonly numbers: readonly [number, number, number];
  readonly preRelease: string | undefined;
}

/** Finds the version in what a program prints about itself, such as `nats-server: v2.12.0-RC.1`; `undefined` when there is none. */
export function parseVersion(text: string): Version | undefined {
  const match = /(?:^|[^\d.])(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.]+))?/.exec(text);
  if (match === null) return undefined;
  return { numbers: [Number(match[1]), Number(match[2]), Number(match[3])], preRelease: match[4] };
}

/** Negative when `left` is older, zero when they are the same, positive when it is newer. */
export function compareVersions(left: Version, right: Version): number {
  for (const index of [0, 1, 2] as const) {
    const difference = left.numbers[index] - right.numbers[index];
    if (difference !== 0) return difference;
  }
  if (left.preRelease === right.preRelease) return 0;
  if (left.preRelease === undefined) return 1;
  if (right.preRelease === undefined) return -1;
  return left.preRelease < right.preRelease ? -1 : 1;
}

/** As people write it, without the `v`. */
export function formatVersion(version: Version): string {
  return version.numbers.join('.') + (version.preRelease === undefined ? '' : `-${version.preRelease}`);
}
