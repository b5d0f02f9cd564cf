import type { JetStreamManager, StoredMsg } from '@nats-io/jetstream';

type BatchMessage = StoredMsg & { pending: number };

/** A batch that has stopped arriving for so long will not go on: a part of it was lost with its connection. */
const SILENCE_MS = 1_000;

/**
 * Messages of one subject from a sequence on, from any replica. The callback form: the iterator form of the client keeps
 * its subscription for five seconds (measured).
 */
export async function directBatch(
  manager: JetStreamManager,
  stream: string,
  request: { seq: number; next_by_subj: string; batch: number },
): Promise<BatchMessage[]> {
  const messages: BatchMessage[] = [];
  let stop = (): void => undefined;
  try {
    return await new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error('a batch was not answered to its end')), SILENCE_MS);
      const callback = (done: { err?: Error } | null, message: BatchMessage): void => {
        if (done === null) {
          messages.push(message);
          timer.refresh();
          return;
        }
        clearTimeout(timer);
        // 404 is how the server says that there is nothing after the given position.
        if (done.err === undefined || isNothingFound(done.err)) resolve(messages);
        else reject(done.err);
      };
      manager.direct.getBatch(stream, { ...request, callback }).then((iterator) => {
        stop = (): void => iterator.stop();
      }, reject);
    });
  } finally {
    stop();
  }
}

/** The newest message of each of the subjects, from any replica; subjects without one are left out. */
export async function lastOf(manager: JetStreamManager, stream: string, subjects: string[]): Promise<StoredMsg[]> {
  const answer = await manager.direct.getLastMessagesFor(stream, { multi_last: subjects });
  const messages: StoredMsg[] = [];
  const timer = setTimeout(() => answer.stop(new Error('a batch was not answered to its end')), SILENCE_MS);
  try {
    for await (const message of answer) {
      messages.push(message);
      timer.refresh();
    }
    return messages;
  } catch (error) {
    if (error instanceof Error && isNothingFound(error)) return [];
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/** The promise's outcome, or an error after so long. What the promise does then is nobody's business any more. */
export async function within<T>(ms: number, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

function isNothingFound(error: Error): boolean {
  return 'code' in error && error.code === 404;
}
