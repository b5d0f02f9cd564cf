import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ByteCounter, UploadBrokenError } from '../commands/artifact/reservation.ts';
import { problemOf } from './errors.ts';
import { Uploads } from './upload-body.ts';

const SILENCE_MS = 1_000;
const LIMITS = {
  ...{ concurrent: 4, perTenant: 3, perSubject: 2, silenceMs: SILENCE_MS, leastBytesPerSecond: 100 },
  memoryBytes: 100,
};

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }));
afterEach(() => void vi.useRealTimers());

function begun() {
  const uploads = new Uploads(LIMITS);
  const request = new IncomingMessage(new Socket());
  const upload = uploads.open(request, { tenantId: 'tn_1', subject: null });
  const chunks = upload.body[Symbol.asyncIterator]();
  return { uploads, request, upload, chunks };
}

test('a sender that is waited for and silent is given up, and told that it was', async () => {
  const { request, upload, chunks } = begun();
  request.push(Buffer.from('one'));
  expect((await chunks.next()).value).toEqual(Buffer.from('one'));
  void chunks.next();
  vi.advanceTimersByTime(SILENCE_MS - 1);
  expect(upload.signal.aborted).toBe(false);
  vi.advanceTimersByTime(1);
  expect(upload.signal.reason).toBeInstanceOf(UploadBrokenError);
  expect(problemOf(upload.signal.reason, 1)?.code).toBe('invalid_request');
});

test('a store that takes its time is not the silence of the sender', async () => {
  const { request, upload, chunks } = begun();
  request.push(Buffer.from('one'));
  await chunks.next();
  vi.advanceTimersByTime(SILENCE_MS * 10);
  expect(upload.signal.aborted).toBe(false);
  request.push(Buffer.from('two'));
  await chunks.next();
  request.push(null);
  expect((await chunks.next()).done).toBe(true);
  // The store may take a while after it has everything.
  vi.advanceTimersByTime(SILENCE_MS * 10);
  expect(upload.signal.aborted).toBe(false);
  expect(vi.getTimerCount()).toBe(0);
});

test('a byte now and then is as good as silence, and a sender at the least rate is waited for', async () => {
  const { request, upload, chunks } = begun();
  const send = async (bytes: number, afterMs: number): Promise<void> => {
    const next = chunks.next();
    vi.advanceTimersByTime(afterMs);
    request.push(Buffer.alloc(bytes));
    await next;
  };
  for (let sent = 0; sent < 100; sent++) await send(50, 500);
  expect(upload.signal.aborted).toBe(false);
  let drops = 0;
  for (; !upload.signal.aborted && drops < 10; drops++) await send(1, 500);
  // The time of one silence, and the ten milliseconds that each byte earns.
  expect(drops).toBe(3);
  expect(upload.signal.reason).toBeInstanceOf(UploadBrokenError);
});

test('what was sent fast earns no more than one silence', async () => {
  const { request, upload, chunks } = begun();
  request.push(Buffer.alloc(1_000_000));
  await chunks.next();
  void chunks.next();
  vi.advanceTimersByTime(SILENCE_MS);
  expect(upload.signal.aborted).toBe(true);
});

test('a tenant and a person have shares; places come back when an upload ends', () => {
  const uploads = new Uploads(LIMITS);
  const open = (tenantId: string, subject: string | null = null) =>
    uploads.open(new IncomingMessage(new Socket()), { tenantId, subject });
  const first = open('tn_1', 'ann');
  open('tn_1', 'ann');
  expect(() => open('tn_1', 'ann')).toThrow(/of this person/);
  open('tn_1', 'bob');
  expect(() => open('tn_1')).toThrow(/of this tenant/);
  open('tn_2', 'ann');
  expect(() => open('tn_3')).toThrow(/Too many uploads are/);
  first.close();
  expect(() => open('tn_1')).not.toThrow();
});

test('a tenant that goes ends its uploads alone, with the answer that its key gets from then on', async () => {
  const { uploads, upload } = begun();
  uploads.end('tn_2');
  expect(upload.signal.aborted).toBe(false);
  const read = new ByteCounter()
    .through(upload.body, () => undefined, upload.signal)
    [Symbol.asyncIterator]()
    .next();
  uploads.end('tn_1');
  await expect(read).rejects.toBe(upload.signal.reason);
  expect(problemOf(upload.signal.reason, 1)?.code).toBe('credential_invalid');
});

test('bodies that are held whole wait for memory, and one tenant leaves half of it to others', async () => {
  const uploads = new Uploads(LIMITS);
  const { signal } = new AbortController();
  const first = await uploads.memory('tn_1', 50, signal);
  let isHeld = false;
  const second = uploads.memory('tn_1', 10, signal).then((free) => {
    isHeld = true;
    return free;
  });
  const other = await uploads.memory('tn_2', 40, signal);
  expect(isHeld).toBe(false);
  const gone = new AbortController();
  const third = uploads.memory('tn_2', 40, gone.signal);
  gone.abort(new Error('the tenant is gone'));
  await expect(third).rejects.toThrow('the tenant is gone');
  first();
  (await second)();
  other();
  (await uploads.memory('tn_1', 10_000, signal))();
});
