import { Window } from 'happy-dom';
import type { HTMLElement } from 'happy-dom';
import { createElement, StrictMode } from 'react';
import type { FunctionComponent } from 'react';
import { hydrateRoot, createRoot } from 'react-dom/client';
import type { Root } from 'react-dom/client';
import { renderToString } from 'react-dom/server';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { createClient } from '#src/client/client.ts';
import type { Client } from '#src/client/client.ts';
import { useSession } from '#src/react/use-session.ts';
import type { UseSession } from '#src/react/use-session.ts';
import { AdminClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { until } from '../support/wait-until.ts';

const SOON_MS = 60_000;
const window = new Window({ url: 'http://localhost/' });
const PAY = {
  fixture: [{ toolCalls: [{ name: 'pay', input: { amount: 5 } }] }, { text: 'It is not paid.' }],
};

let host: Host;
let client: Client;
/** Streams that the client has open. */
let open = 0;
let opened = 0;
let root: Root | null = null;

beforeAll(async () => {
  Object.assign(globalThis, { window, document: window.document });
  host = await startHost();
  const tenant = await new AdminClient(host).createTenant();
  const { tenantId, key } = tenant.credentials;
  client = createClient({
    ...{ url: host.url, key, tenant: tenantId },
    fetch: async (url, init) => {
      if (url.includes('/events')) {
        opened++;
        open++;
        init.signal?.addEventListener('abort', () => open--, { once: true });
      }
      return await fetch(url, init);
    },
  });
  const tools = [{ name: 'pay', inputSchema: { type: 'object' }, approval: 'always' as const }];
  await client.agents.save('agent', { instructions: 'Pay.', model: { provider: 'fixture', model: 'any' }, tools });
});

afterEach(() => {
  seen = undefined;
  root?.unmount();
  root = null;
});

afterAll(async () => {
  await window.happyDOM.close();
  await host[Symbol.asyncDispose]();
});

let seen: UseSession | undefined;
let renderings = 0;
const Transcript: FunctionComponent<{ id: string; max?: number }> = ({ id, max }) => {
  const session = useSession(client, id, { eventsMax: max });
  seen = session;
  renderings++;
  const lines = session.events.flatMap((event) => {
    if (event.type === 'command.message') return [`> ${event.payload.content ?? ''}`];
    return event.type === 'message.assistant' ? [event.payload.text] : [];
  });
  return createElement('pre', null, session.isLoading ? 'Loading' : lines.join('\n') || 'Nothing');
};

function container(): HTMLElement {
  const element = window.document.createElement('div');
  window.document.body.append(element);
  return element;
}

/** What React draws in has the types of a browser, which these tests do not have. */
const asContainer = (element: HTMLElement): Container => element as unknown as Container;
type Container = Parameters<typeof createRoot>[0];

function mount(element: HTMLElement, id: string, max?: number): void {
  root ??= createRoot(asContainer(element));
  const shown = createElement(
    StrictMode,
    null,
    createElement(Transcript, { id, ...(max === undefined ? {} : { max }) }),
  );
  root?.render(shown);
}

const shows = async (element: HTMLElement, text: string): Promise<void> => {
  await until(`it shows ${text}`, () => element.textContent === text, SOON_MS).catch((error: unknown) => {
    throw new Error(`${String(error)}; it shows ${element.textContent}`);
  });
};

test('a component shows the history and what follows, once, in strict mode, and its stream ends with it', async () => {
  const session = await client.sessions.open({ agentId: 'agent' });
  await session.ask('One');
  const element = container();
  const before = opened;
  mount(element, session.id);
  await shows(element, '> One\necho: One');
  await seen?.send('Two');
  await shows(element, '> One\necho: One\n> Two\necho: Two');
  expect(seen?.error).toBeNull();
  expect(opened).toBeGreaterThan(before);
  root?.unmount();
  root = null;
  await until('its streams are closed', () => open === 0, SOON_MS);
});

test('what the agent writes is there before its message is, and gone with it', async () => {
  const session = await client.sessions.open({ agentId: 'agent' });
  const element = container();
  mount(element, session.id);
  await shows(element, 'Nothing');
  // For so long that it is seen while it is written, whoever stands still for a while.
  const text = Array.from({ length: 200 }, (_, at) => `word${at}`).join(' ');
  const script = JSON.stringify({ fixture: [{ text, tokensPerSecond: 20 }] });
  await seen?.send(script);
  await until('a part is there', () => (seen?.writing ?? '').length > 5, SOON_MS);
  expect(text.startsWith(seen?.writing ?? '-')).toBe(true);
  expect(seen?.events.some(({ type }) => type === 'message.assistant')).toBe(false);
  await shows(element, `> ${script}\n${text}`);
  expect(seen?.writing).toBe('');
});

test('what is asked is there until it is answered, and the turn is busy until it ends', async () => {
  const session = await client.sessions.open({ agentId: 'agent' });
  const element = container();
  mount(element, session.id);
  await shows(element, 'Nothing');
  expect(seen?.isBusy).toBe(false);
  await seen?.send(JSON.stringify(PAY));
  const settled = async (what: string, there: () => boolean): Promise<void> => {
    await until(what, there, SOON_MS);
  };
  await settled('it is asked', () => seen?.interactions.length === 1);
  expect(seen?.isBusy).toBe(true);
  expect(seen?.interactions).toMatchObject([{ kind: 'approval', toolName: 'pay', input: { amount: 5 } }]);
  await seen?.approve(seen.interactions[0]?.interactionId ?? '', false);
  await settled('the turn has ended', () => seen?.isBusy === false);
  expect(seen?.interactions).toEqual([]);
  expect(element.textContent).toContain('It is not paid.');
});

test('another session replaces the first, of which nothing is left', async () => {
  const [one, two] = [
    await client.sessions.open({ agentId: 'agent' }),
    await client.sessions.open({ agentId: 'agent' }),
  ];
  await one.ask('One');
  await two.ask('Two');
  const element = container();
  mount(element, one.id);
  await shows(element, '> One\necho: One');
  mount(element, two.id);
  await shows(element, '> Two\necho: Two');
  await until('one stream is open', () => open === 1, SOON_MS);
  expect(element.textContent).not.toContain('One');
});

test('a session that does not exist is an error, and many records are few renderings', async () => {
  const element = container();
  mount(element, 'absent');
  await shows(element, 'Nothing');
  expect(seen?.error).toMatchObject({ code: 'not_found' });
  const session = await client.sessions.open({ agentId: 'agent' });
  for (let turn = 0; turn < 20; turn++) await session.ask(`Message ${turn}`);
  const before = renderings;
  mount(element, session.id, 5);
  await until('all is read', () => seen?.isLoading === false && seen.events.length > 0, SOON_MS);
  expect(seen?.events).toHaveLength(5);
  expect(seen?.events.at(-1)?.type).toBe('turn.completed');
  expect(renderings - before).toBeLessThan(40);
});

test('on a server nothing is read, and the browser takes over what was sent', async () => {
  const session = await client.sessions.open({ agentId: 'agent' });
  await session.ask('One');
  const before = opened;
  const html = renderToString(createElement(Transcript, { id: session.id }));
  expect(html).toBe('<pre>Loading</pre>');
  expect(opened).toBe(before);
  const element = container();
  element.innerHTML = html;
  const errors: unknown[] = [];
  root = hydrateRoot(asContainer(element), createElement(Transcript, { id: session.id }), {
    onRecoverableError: (error) => errors.push(error),
  });
  await shows(element, '> One\necho: One');
  expect(errors).toEqual([]);
});
