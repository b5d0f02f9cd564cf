import { expect, test } from 'vitest';
import { debianMainArchive, parseDeb822Sources, parseOneLineSources } from './apt-sources.ts';

const DEB822 = `Types: deb deb-src
# a remark between the fields
URIs: http://mirror.example/debian
Suites: stable stable-updates
Components: main
 contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: stable-security
Components: main

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: stable
Components: main
`;

test('reads deb822 stanzas, each address and suite, without the disabled ones', () => {
  const sources = parseDeb822Sources(DEB822);
  expect(sources.map(({ uri, suite }) => `${uri} ${suite}`)).toEqual([
    'http://mirror.example/debian stable',
    'http://mirror.example/debian stable-updates',
    'http://mirror.example/debian-security stable-security',
  ]);
  expect(sources[0]).toMatchObject({
    components: ['main', 'contrib'],
    signedBy: '/usr/share/keyrings/debian-archive-keyring.gpg',
  });
});

test('reads a stanza with a key in it as one without a keyring', () => {
  const text =
    'Types: deb\nURIs: http://mirror.example/debian/\nSuites: sid\nComponents: main\nSigned-By:\n -----BEGIN PGP\n .\n abc\n';
  expect(parseDeb822Sources(text)).toEqual([
    { uri: 'http://mirror.example/debian/', suite: 'sid', components: ['main'], signedBy: undefined },
  ]);
});

test('reads the one-line format with and without options', () => {
  const text = `# deb http://off.example/debian stable main
deb [arch=amd64 signed-by=/k.gpg] https://mirror.example/debian stable main contrib # remark
deb-src http://mirror.example/debian stable main
deb http://mirror.example/ubuntu noble main`;
  expect(parseOneLineSources(text)).toEqual([
    { uri: 'https://mirror.example/debian', suite: 'stable', components: ['main', 'contrib'], signedBy: '/k.gpg' },
    { uri: 'http://mirror.example/ubuntu', suite: 'noble', components: ['main'], signedBy: undefined },
  ]);
});

test('takes the main archive of Debian and no other', () => {
  expect(debianMainArchive(parseDeb822Sources(DEB822))?.uri).toBe('http://mirror.example/debian');
  const others = parseOneLineSources(`deb http://mirror.example/ubuntu noble main
deb http://mirror.example/debian-security stable-security main
deb http://third.example/debian stable nonfree
deb file:/media/debian stable main`);
  expect(debianMainArchive(others)).toBeUndefined();
});
