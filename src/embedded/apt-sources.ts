import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { readIfPresent } from '../lib/files.ts';

/** An archive that apt is configured for. */
export interface AptSource {
  readonly uri: string;
  readonly suite: string;
  readonly components: readonly string[];
  /** Path of the keyring, when the entry names one. */
  readonly signedBy: string | undefined;
}

/** Reads the one-line format (`deb [options] uri suite component…`); unknown lines are left out. */
export function parseOneLineSources(text: string): AptSource[] {
  const sources: AptSource[] = [];
  for (const line of text.split('\n')) {
    const match = /^\s*deb\s+(?:\[([^\]]*)\]\s*)?(\S+)\s+(\S+)((?:\s+[^\s#]+)*)/.exec(line);
    if (match === null) continue;
    const [, options = '', uri = '', suite = '', components = ''] = match;
    const signedBy = /(?:^|\s)signed-by=(\S+)/i.exec(options)?.[1];
    sources.push({ uri, suite, components: words(components), signedBy: keyringPath(signedBy) });
  }
  return sources;
}

/** Reads the deb822 format (`Types:`, `URIs:`, …), one entry for each address and suite; disabled stanzas are left out. */
export function parseDeb822Sources(text: string): AptSource[] {
  const sources: AptSource[] = [];
  for (const stanza of text.split(/\n[ \t]*\n/)) {
    const fields = stanzaFields(stanza);
    if (!words(fields.get('types')).includes('deb')) continue;
    if (/^(no|false|without|off|disable|0)$/i.test(fields.get('enabled')?.trim() ?? '')) continue;
    const shared = {
      components: words(fields.get('components')),
      signedBy: keyringPath(words(fields.get('signed-by'))[0]),
    };
    for (const uri of words(fields.get('uris'))) {
      for (const suite of words(fields.get('suites'))) sources.push({ uri, suite, ...shared });
    }
  }
  return sources;
}

/**
 * The Debian main archive among the sources: over http(s), with the component `main`, under a path that ends in
 * `/debian`. That leaves out Ubuntu, security and third-party archives, which have no `sid`.
 */
export function debianMainArchive(sources: readonly AptSource[]): AptSource | undefined {
  return sources.find(
    ({ uri, suite, components }) =>
      /^https?:\/\/\S+\/debian\/?$/.test(uri) && components.includes('main') && !/-security$|\/updates$/.test(suite),
  );
}

/** Everything apt reads: `sources.list` and, in `sources.list.d`, `*.list` and `*.sources`. */
export async function readAptSources(directory = '/etc/apt'): Promise<AptSource[]> {
  const parts = join(directory, 'sources.list.d');
  const names = await readdir(parts).catch(() => []);
  const oneLine = [
    join(directory, 'sources.list'),
    ...names.filter((n) => n.endsWith('.list')).map((n) => join(parts, n)),
  ];
  const deb822 = names.filter((name) => name.endsWith('.sources')).map((name) => join(parts, name));
  const read = async (paths: readonly string[], parse: (text: string) => AptSource[]): Promise<AptSource[]> =>
    (await Promise.all(paths.map(async (path) => parse((await readIfPresent(path)) ?? '')))).flat();
  return [...(await read(deb822, parseDeb822Sources)), ...(await read(oneLine, parseOneLineSources))];
}

function stanzaFields(stanza: string): Map<string, string> {
  const fields = new Map<string, string>();
  let current = '';
  for (const line of stanza.split('\n')) {
    if (line.startsWith('#')) continue;
    const match = /^([A-Za-z0-9-]+):(.*)$/.exec(line);
    if (match !== null) {
      current = (match[1] ?? '').toLowerCase();
      fields.set(current, match[2] ?? '');
    } else if (current !== '') fields.set(current, `${fields.get(current) ?? ''} ${line}`);
  }
  return fields;
}

function words(text: string | undefined): string[] {
  return (text ?? '').split(/\s+/).filter((word) => word !== '');
}

/** `Signed-By` may also hold a key itself or a fingerprint; only a path is of use here. */
function keyringPath(text: string | undefined): string | undefined {
  return text?.startsWith('/') ? text.split(',')[0] : undefined;
}
