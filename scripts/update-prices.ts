import { execFileSync } from 'node:child_process';
import type { StdioOptions } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { catalogueOf } from '#src/drivers/model/prices.ts';
import type { PricedModel } from '#src/drivers/model/prices.ts';

/**
 * Brings prices and context windows up to date: names the newest release of the catalogue's package in `package.json` and the
 * lock, installs it, and says what that changes for the models that a tenant can select. Nothing else of the lock changes,
 * which `npm install` would see to. `--list` prints the models as they are now.
 */
const PACKAGE = '@pydantic/genai-prices';
const PROVIDERS = ['anthropic', 'openai', 'google'];
const ROOT = fileURLToPath(new URL('..', import.meta.url));

type Catalogue = Readonly<Record<string, PricedModel>>;

function listed(): Catalogue {
  const all = PROVIDERS.flatMap((provider) =>
    catalogueOf(provider).map((model) => [`${provider} ${model.id}`, model] as const),
  );
  return Object.fromEntries(all);
}

/** As another process sees it, for which a lock that has changed is installed first. */
function installed(): Catalogue {
  const text = run(process.execPath, ['scripts/run.mjs', 'prices', '--list']);
  // What `--list` prints.
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  return JSON.parse(text) as Catalogue;
}

function told({ inputUsdPerMillion: input, outputUsdPerMillion: output, contextWindow: window }: PricedModel): string {
  return `input ${input ?? '?'}, output ${output ?? '?'} USD a million, window ${window ?? '?'}`;
}

function changes(before: Catalogue, after: Catalogue): readonly string[] {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].toSorted();
  return names.flatMap((name) => {
    const [old, now] = [before[name], after[name]];
    if (old === undefined) return now === undefined ? [] : [`new      ${name}: ${told(now)}`];
    if (now === undefined) return [`gone     ${name}`];
    return told(old) === told(now) ? [] : [`changed  ${name}: ${told(old)} → ${told(now)}`];
  });
}

function run(command: string, args: readonly string[]): string {
  const stdio: StdioOptions = ['ignore', 'pipe', 'inherit'];
  return execFileSync(command, args, { cwd: ROOT, encoding: 'utf8', maxBuffer: 67_108_864, stdio });
}

const release = z.object({
  version: z.string(),
  'dist.integrity': z.string(),
  /** The lock would have to name them, too. */
  dependencies: z.record(z.string(), z.string()).default({}),
});

type Release = z.infer<typeof release>;

function newest(): Release {
  return release.parse(
    JSON.parse(run('npm', ['view', PACKAGE, 'version', 'dist.integrity', 'dependencies', '--json'])),
  );
}

/** Each place that a release is named at. The rest of a file stays as it is, to the byte. */
function edit(file: string, places: readonly (readonly [place: RegExp, value: string])[]): void {
  const path = join(ROOT, file);
  let text = readFileSync(path, 'utf8');
  for (const [place, value] of places) {
    if (!place.test(text)) throw new Error(`${file} does not name ${PACKAGE} as expected`);
    text = text.replace(place, `$1${value}"`);
  }
  writeFileSync(path, text);
}

function name({ version, 'dist.integrity': integrity }: Release): void {
  const wanted = new RegExp(`("${PACKAGE}": ")[^"]*"`);
  const member = (key: string): RegExp => new RegExp(`("node_modules/${PACKAGE}": \\{[^}]*?"${key}": ")[^"]*"`);
  edit('package.json', [[wanted, version]]);
  edit('package-lock.json', [
    [wanted, version],
    [member('version'), version],
    [member('integrity'), integrity],
  ]);
}

function update(): string {
  const found = newest();
  if (Object.keys(found.dependencies).length > 0)
    return `${PACKAGE} ${found.version} has dependencies: install it by hand.`;
  const before = installed();
  name(found);
  const told = changes(before, installed());
  return [
    `${PACKAGE} ${found.version}`,
    ...(told.length === 0 ? ['no model that can be selected changes'] : told),
  ].join('\n');
}

process.stdout.write(process.argv.includes('--list') ? JSON.stringify(listed()) : `${update()}\n`);
