import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Meter, UploadBrokenError } from '../commands/artifact/intake.ts';
import { problemOf } from './errors.ts';
import { Uploads } from './upload-body.ts';

const SILENCE_MS = 1_000;

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }));
afterEach(() => void vi.useRealTimers());

function begun() {
  const uploads = new Uploads({ concurrent: 1, silenceMs: SILENCE_MS });
  const request = new IncomingMessage(new Socket());
  const upload = uploads.open(request, 'tn_1');
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
  // The store may go on for a while when it has everything.
  vi.advanceTimersByTime(SILENCE_MS * 10);
  expect(upload.signal.aborted).toBe(false);
  expect(vi.getTimerCount()).toBe(0);
});

test('a tenant that goes ends its uploads alone, with the answer that its key gets from then on', async () => {
  const { uploads, upload } = begun();
  uploads.end('tn_2');
  expect(upload.signal.aborted).toBe(false);
  const read = new Meter()
    .through(upload.body, () => undefined, upload.signal)
    [Symbol.asyncIterator]()
    .next();
  uploads.end('tn_1');
  await expect(read).rejects.toBe(upload.signal.reason);
  expect(problemOf(upload.signal.reason, 1)?.code).toBe('credential_invalid');
});
