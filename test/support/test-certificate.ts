import { generateKeyPairSync, sign } from 'node:crypto';

export interface TestCertificate {
  readonly cert: string;
  readonly key: string;
}

function der(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  const size = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}

const bytes = (hex: string): Buffer => Buffer.from(hex, 'hex');
const sequence = (...parts: readonly Uint8Array[]): Buffer => der(0x30, ...parts);
const oid = (hex: string): Buffer => der(0x06, bytes(hex));
const yes = der(0x01, bytes('ff'));

/** A certificate of its own for a server on 127.0.0.1, which a Host trusts when it is told to (NODE_EXTRA_CA_CERTS). */
export function testCertificate(): TestCertificate {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const algorithm = sequence(oid('2a8648ce3d040302'));
  const name = sequence(der(0x31, sequence(oid('550403'), der(0x0c, Buffer.from('a server for tests')))));
  const time = (at: string): Buffer => der(0x17, Buffer.from(at));
  const extensions = sequence(
    sequence(oid('551d13'), yes, der(0x04, sequence(yes))),
    sequence(oid('551d11'), der(0x04, sequence(der(0x87, bytes('7f000001'))))),
  );
  const content = sequence(
    der(0xa0, der(0x02, bytes('02'))),
    der(0x02, bytes('01')),
    algorithm,
    name,
    sequence(time('200101000000Z'), time('491231235959Z')),
    name,
    publicKey.export({ type: 'spki', format: 'der' }),
    der(0xa3, extensions),
  );
  const signature = der(0x03, bytes('00'), sign('sha256', content, privateKey));
  const base64 = sequence(content, algorithm, signature).toString('base64');
  const lines = base64.match(/.{1,64}/g) ?? [];
  const cert = `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`;
  return { cert, key: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString() };
}
