import { expect, test } from 'vitest';
import { readConfig } from './config.ts';
import { ROLES } from './roles.ts';

const CLUSTER = { NATS_URL: 'nats://nats:4222' };
const HOST = { AGENT_HOST_CONSOLE_HOST: 'http://host:7070' };

test.each([
  ['with its own servers', {}, '127.0.0.1:7072 or any'],
  ['with its own servers, switched off', { AGENT_HOST_CONSOLE_LISTEN: 'off' }, null],
  ['with roles that are others', { AGENT_HOST_ROLES: 'commands,reads,projector,engine' }, null],
  ['at an address', { AGENT_HOST_CONSOLE_LISTEN: '[::1]:9000' }, '::1:9000'],
  ['in a cluster', CLUSTER, null],
  ['in a cluster, by its role', { ...CLUSTER, AGENT_HOST_ROLES: 'reads, console' }, '127.0.0.1:7072 or any'],
  ['in a cluster, by its address', { ...CLUSTER, AGENT_HOST_CONSOLE_LISTEN: '127.0.0.1:0' }, '127.0.0.1:0'],
  ['alone', { ...HOST, AGENT_HOST_ROLES: 'console' }, '127.0.0.1:7072 or any'],
])('the console of a node %s', (_, env, wanted) => {
  const { console: made } = readConfig(env);
  const at = made === null ? null : `${made.listen.host}:${made.listen.port}${made.isAsked ? '' : ' or any'}`;
  expect(at).toBe(wanted);
});

test('the console is none of the work of a node', () => {
  expect(readConfig({ AGENT_HOST_ROLES: 'engine,console' }).roles).toEqual(['engine']);
  expect(readConfig({ ...HOST, AGENT_HOST_ROLES: 'console' }).roles).toEqual([]);
  expect(readConfig({}).roles).toEqual(ROLES);
});

test('what cannot be is refused, with what to do', () => {
  expect(() => readConfig({ AGENT_HOST_ROLES: 'console' })).toThrow('needs AGENT_HOST_CONSOLE_HOST');
  expect(() => readConfig({ AGENT_HOST_CONSOLE_LISTEN: '7072' })).toThrow('must be host:port, or off');
  expect(() => readConfig({ AGENT_HOST_ROLES: 'consoles' })).toThrow('must be one of');
});
