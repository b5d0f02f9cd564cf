import { expect, test } from 'vitest';
import { EgressSyntaxError, egressPolicy, isCallableBase, isCallableForm, isLoopbackHost } from './egress.ts';

const OPEN = egressPolicy('public');
const HERE = egressPolicy('public,loopback');

test('public: what is routed on the internet, by https', () => {
  for (const url of [
    ...['https://api.example', 'https://api.example:8443/v1', 'https://93.184.216.34', 'https://[2606:2800::1]/v1'],
    ...['https://[64:ff9b::5db8:d822]', 'https://[::ffff:93.184.216.34]', 'https://API.example./'],
  ]) {
    expect(OPEN.allowsUrl(url), url).toBe(true);
    expect(HERE.allowsUrl(url), url).toBe(true);
  }
});

test('neither this machine, nor private networks, nor where clouds keep credentials, in whatever form', () => {
  for (const url of [
    ...['', 'api.example', '/v1', 'ftp://api.example', 'file:///etc/passwd', 'data:,x', 'http://api.example/v1'],
    ...['http://10.1.2.3', 'https://10.1.2.3', 'https://192.168.0.1', 'https://172.16.9.9', 'https://100.64.0.1'],
    ...['https://[fd12::1]/v1', 'https://[::ffff:10.0.0.1]', 'https://[64:ff9b::a00:1]', 'https://198.18.0.1'],
    ...['http://127.0.0.1.example', 'https://a:b@api.example', 'https://a@api.example', 'https://metadata.'],
    ...['https://169.254.169.254/latest', 'https://169.254.169.254../', 'https://[fe80::1]', 'https://0.0.0.0'],
    ...['https://[::ffff:169.254.169.254]', 'https://[::]', 'https://[fd00:ec2::254]', 'https://100.100.100.200'],
    ...['https://metadata.google.internal./', 'https://2852039166/', 'https://0xa9.0xfe.0xa9.0xfe/'],
    ...['https://224.0.0.1', 'https://168.63.129.16', 'https://[64:ff9b::a9fe:a9fe]/', 'https://255.255.255.255'],
  ]) {
    expect(OPEN.allowsUrl(url), url).toBe(false);
    expect(HERE.allowsUrl(url), url).toBe(false);
  }
});

test('loopback is called only when the policy has it and the URL means it, and then also without TLS', () => {
  for (const url of [
    ...['http://127.0.0.1:1234/v1', 'http://localhost:11434/v1', 'http://[::1]:8080', 'https://127.0.0.2'],
    ...['https://localhost.', 'http://localhost.:80/', 'http://[::ffff:127.0.0.1]'],
  ]) {
    expect(HERE.allowsUrl(url), url).toBe(true);
    expect(OPEN.allowsUrl(url), url).toBe(false);
  }
  for (const address of ['127.0.0.1', '127.9.9.9', '::1', '::ffff:127.0.0.1']) {
    expect(HERE.allowsAddress(address, 'api.example'), address).toBe(false);
    expect(HERE.allowsAddress(address, 'localhost'), address).toBe(true);
    expect(OPEN.allowsAddress(address, 'localhost'), address).toBe(false);
  }
  expect(HERE.allowsAddress('10.0.0.1', 'localhost')).toBe(false);
  expect(HERE.allowsAddress('169.254.1.1', 'localhost')).toBe(false);
  expect(egressPolicy('loopback').allowsUrl('https://api.example')).toBe(false);
  expect(egressPolicy('loopback').allowsUrl('http://localhost:1')).toBe(true);
});

test('a named host is called wherever it stands, but never at a metadata service', () => {
  const named = egressPolicy('vllm.ml.svc, *.Models.internal');
  for (const host of ['vllm.ml.svc', 'vllm.ml.svc.', 'a.models.internal', 'b.a.models.internal']) {
    expect(named.allowsUrl(`http://${host}:8000/v1`), host).toBe(true);
    for (const address of ['10.1.2.3', '93.184.216.34', 'fd12::1', '127.0.0.1']) {
      expect(named.allowsAddress(address, host), `${host} ${address}`).toBe(true);
    }
    for (const address of ['169.254.169.254', '168.63.129.16', '2002:a9fe:a9fe::', '0.0.0.0', 'fd00:ec2::254']) {
      expect(named.allowsAddress(address, host), `${host} ${address}`).toBe(false);
    }
  }
  for (const host of ['models.internal', 'xmodels.internal', 'ml.svc', 'api.example', 'localhost', '10.1.2.3']) {
    expect(named.allowsUrl(`https://${host}`), host).toBe(false);
    expect(named.allowsAddress('10.1.2.3', host), host).toBe(false);
  }
  expect(egressPolicy('public,metadata').allowsUrl('https://metadata')).toBe(false);
});

test('a named network is called by address, and by any name that leads into it', () => {
  const named = egressPolicy('10.1.0.0/16,fd12:3::/32,192.168.7.7');
  for (const url of ['http://10.1.2.3:11434', 'https://[fd12:3::9]', 'https://192.168.7.7', 'https://api.example']) {
    expect(named.allowsUrl(url), url).toBe(true);
  }
  for (const url of ['https://10.2.0.1', 'https://192.168.7.8', 'http://api.example', 'https://93.184.216.34']) {
    expect(named.allowsUrl(url), url).toBe(false);
  }
  expect(named.allowsAddress('10.1.9.9', 'api.example')).toBe(true);
  expect(named.allowsAddress('::ffff:10.1.9.9', 'api.example')).toBe(true);
  expect(named.allowsAddress('10.2.9.9', 'api.example')).toBe(false);
  expect(named.allowsAddress('93.184.216.34', 'api.example')).toBe(false);
  expect(egressPolicy('0.0.0.0/0').allowsAddress('169.254.169.254', 'api.example')).toBe(false);
});

test('no form of version 6 leads to an address that is refused in version 4', () => {
  for (const address of [
    ...['::ffff:169.254.169.254', '::169.254.169.254', '::ffff:0:169.254.169.254', '::a9fe:a9fe', '::ffff:0:a9fe:a9fe'],
    ...['64:ff9b::169.254.169.254', '64:ff9b::127.0.0.1', '64:ff9b::0.0.0.0', '64:ff9b::100.100.100.200'],
    ...['64:ff9b::168.63.129.16', '64:ff9b::224.0.0.1', '64:ff9b:1::169.254.169.254', '64:ff9b:1:a9fe:a9:fe00::'],
    ...['2002:a9fe:a9fe::', '2002:a9fe:a9fe::1', '2001:0:a9fe:a9fe::', '2001::5601:5601', '::127.0.0.1', '::2'],
    ...['fec0::1', 'feff::1', 'fd00:ec2::23', 'fd00:ec2::123', 'fd00:ec2::253', 'fd20:ce::254', 'fe80::1%eth0'],
    ...['::ffff:10.0.0.1', '64:ff9b::10.0.0.1', 'no address', ''],
  ]) {
    expect(HERE.allowsAddress(address, 'api.example'), address).toBe(false);
  }
  for (const address of ['64:ff9b::93.184.216.34', '::ffff:93.184.216.34', '2003::1', '2606::a9fe:a9fe']) {
    expect(OPEN.allowsAddress(address, 'api.example'), address).toBe(true);
  }
});

test('a policy that cannot be read is refused and says what may stand there', () => {
  for (const text of ['', 'public,,', '10.0.0.0/40', 'https://api.example', '*', '*.', 'a b', 'host:443', '1.2.3']) {
    expect(() => egressPolicy(text), text).toThrow(EgressSyntaxError);
  }
});

test('a base that paths are put behind has no query and no fragment', () => {
  expect(isCallableBase('https://api.example/v1')).toBe(true);
  for (const url of ['https://api.example/v1?key=x', 'https://api.example/#x']) {
    expect(isCallableForm(url), url).toBe(true);
    expect(isCallableBase(url), url).toBe(false);
  }
  expect(isLoopbackHost('[::1]')).toBe(true);
  expect(isLoopbackHost('localhost.example')).toBe(false);
});
