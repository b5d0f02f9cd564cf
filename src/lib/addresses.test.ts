import { expect, test } from 'vitest';
import { isCallableIp, isCallableUrl } from './addresses.ts';

test('https anywhere but where machines keep their credentials; http on loopback only', () => {
  for (const url of [
    ...['https://api.example', 'https://api.example:8443/v1', 'https://10.1.2.3/v1', 'https://[fd12::1]/v1'],
    ...['http://127.0.0.1:1234/v1', 'http://localhost:11434/v1', 'http://[::1]:8080', 'https://127.0.0.2'],
  ]) {
    expect(isCallableUrl(url), url).toBe(true);
  }
  for (const url of [
    ...['', 'api.example', '/v1', 'ftp://api.example', 'file:///etc/passwd', 'data:,x', 'http://api.example/v1'],
    ...['http://10.1.2.3', 'http://127.0.0.1.example', 'http://localhost.example', 'https://a:b@api.example'],
    ...['https://a@api.example', 'https://api.example/v1?key=x', 'https://api.example/#x'],
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
