/**
 * The figures of several processes as one text: a metric is described once, and has the samples of all of them, which
 * their label `process` tells apart.
 */
export function mergedMetrics(texts: readonly string[]): string {
  const families = new Map<string, { readonly described: string[]; readonly samples: string[] }>();
  for (const text of texts) {
    let family = { described: [] as string[], samples: [] as string[] };
    for (const line of text.split('\n').filter((one) => one !== '')) {
      const [, keyword, name = ''] = /^# (HELP|TYPE) (\S+)/.exec(line) ?? [];
      if (keyword === undefined) {
        family.samples.push(line);
        continue;
      }
      const known = families.get(name);
      family = known ?? { described: [], samples: [] };
      families.set(name, family);
      if (!family.described.some((one) => one.startsWith(`# ${keyword} `))) family.described.push(line);
    }
  }
  return [...families.values()].map(({ described, samples }) => [...described, ...samples, ''].join('\n')).join('\n');
}
