import { expect, test } from 'vitest';
import { isCallableBaseUrl, isCallableIp, isCallableUrl } from './addresses.ts';

test('https anywhere but where machines keep their credentials; http on loopback only', () => {
  for (const url of [
    ...['https://api.example', 'https://api.example:8443/v1', 'https://10.1.2.3/v1', 'https://[fd12::1]/v1'],
    ...[
      'https://[64:ff9b::5db8:d822]',
      'https://[::ffff:93.184.216.34]',
      'https://localhost.',
      'http://localhost.:80/',
    ],
    ...['http://127.0.0.1:1234/v1', 'http://localhost:11434/v1', 'http://[::1]:8080', 'https://127.0.0.2'],
  ]) {
    expect(isCallableUrl(url), url).toBe(true);
    expect(isCallableBaseUrl(url), url).toBe(true);
  }
  for (const url of [
    ...['', 'api.example', '/v1', 'ftp://api.example', 'file:///etc/passwd', 'data:,x', 'http://api.example/v1'],
    ...['http://10.1.2.3', 'http://127.0.0.1.example', 'http://localhost.example', 'https://a:b@api.example'],
    ...['https://a@api.example', 'https://metadata.', 'https://169.254.169.254./', 'https://169.254.169.254../'],
    ...['https://169.254.169.254/latest', 'https://[fe80::1]', 'https://[::ffff:169.254.169.254]', 'https://0.0.0.0'],
    ...['https://[::]', 'https://[fd00:ec2::254]', 'https://100.100.100.200', 'https://metadata.google.internal./'],
    ...[
      'https://metadata.google.internal/',
      'https://2852039166/',
      'https://0xa9.0xfe.0xa9.0xfe/',
      'https://224.0.0.1',
    ],
    ...['http://169.254.169.254/', 'https://[64:ff9b::a9fe:a9fe]/'],
  ]) {
    expect(isCallableUrl(url), url).toBe(false);
    expect(isCallableBaseUrl(url), url).toBe(false);
  }
});

test('what comes behind a base would be cut off by a query or a fragment of its own', () => {
  for (const url of ['https://api.example/v1?key=x', 'https://api.example/#x']) {
    expect(isCallableUrl(url), url).toBe(true);
    expect(isCallableBaseUrl(url), url).toBe(false);
  }
});

test('no form of version 6 leads to an address that is refused in version 4', () => {
  for (const address of [
    ...['::ffff:169.254.169.254', '::169.254.169.254', '::ffff:0:169.254.169.254', '::a9fe:a9fe', '::ffff:0:a9fe:a9fe'],
    ...['64:ff9b::169.254.169.254', '64:ff9b::127.0.0.1', '64:ff9b::0.0.0.0', '64:ff9b::100.100.100.200'],
    ...['64:ff9b::168.63.129.16', '64:ff9b::224.0.0.1', '64:ff9b:1::169.254.169.254', '64:ff9b:1:a9fe:a9:fe00::'],
    ...['2002:a9fe:a9fe::', '2002:a9fe:a9fe::1', '2001:0:a9fe:a9fe::', '2001::5601:5601', '::127.0.0.1', '::2'],
    ...['fec0::1', 'feff::1', 'fd00:ec2::23', 'fd00:ec2::123', 'fd00:ec2::253', 'fd20:ce::254', 'fe80::1%eth0'],
  ]) {
    expect(isCallableIp(address, 'other'), address).toBe(false);
    expect(isCallableIp(address, 'loopback'), address).toBe(false);
  }
  for (const address of ['64:ff9b::93.184.216.34', '64:ff9b::10.0.0.1', '2001:1::1', '2003::1', '2606::a9fe:a9fe']) {
    expect(isCallableIp(address, 'other'), address).toBe(true);
  }
});

test('a name that stands for this machine is called only when it was given as such', () => {
  for (const address of ['127.0.0.1', '127.9.9.9', '::1', '::ffff:127.0.0.1']) {
    expect(isCallableIp(address, 'other'), address).toBe(false);
    expect(isCallableIp(address, 'loopback'), address).toBe(true);
  }
  for (const address of ['169.254.1.1', '::ffff:169.254.1.1', 'fe80::1', '::', 'no address', '']) {
    expect(isCallableIp(address, 'other'), address).toBe(false);
    expect(isCallableIp(address, 'loopback'), address).toBe(false);
  }
  for (const address of ['93.184.216.34', '10.0.0.1', '2606:2800::1', 'fd12::1']) {
    expect(isCallableIp(address, 'other'), address).toBe(true);
  }
});
