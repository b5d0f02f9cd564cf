import { hash } from 'node:crypto';
import { readFile, readdir } from 'node:fs/promises';
import path from 'node:path';
import type { ConversationMessage, FileRef } from '#src/domain/turn/conversation.ts';
import type { ModelOutcome } from '#src/domain/turn/model-outcome.ts';
import type { ModelDelta, ModelFile, ModelRequest } from '#src/drivers/model/port.ts';
import { NEVER } from './model-calls.ts';
import type { ModelCalls } from './model-calls.ts';
import type { Reply, WireRequest } from './model-server.ts';
import type { UploadRequest } from './model-uploads.ts';
import type { Wire } from './model-wire.ts';

/* The wires of the providers in files; see the README beside them. */

const FOLDER = path.join(import.meta.dirname, 'model-wire');

export function wireFile(wire: Wire, name: string): string {
  return path.join(FOLDER, wire, name);
}

/** What one provider's folder has: the cases with an answer, and those with a golden file. */
export async function filesOf(wire: Wire): Promise<{ answers: string[]; golden: string[] }> {
  const names = await readdir(path.join(FOLDER, wire));
  const ending = (end: string): string[] =>
    names.flatMap((name) => (name.endsWith(end) ? [name.slice(0, -end.length)] : [])).toSorted();
  return { answers: ending('.http'), golden: ending('.json') };
}

const NEXT_ANSWER = /^=====\n/m;
const CUT = '(the connection breaks)\n';

/** The answers of a case, one a step: a status, headers, an empty line, and the body as it is. */
export async function answersOf(wire: Wire, name: string): Promise<Reply[]> {
  const text = await readFile(wireFile(wire, `${name}.http`), 'utf8');
  return text.split(NEXT_ANSWER).map((one) => {
    const end = one.indexOf('\n\n');
    const [status = '', ...headers] = one.slice(0, end).split('\n');
    const body = one.slice(end + 2);
    const isCut = body.endsWith(CUT);
    return {
      raw: isCut ? body.slice(0, -CUT.length) : body,
      status: Number(/^HTTP (\d{3})$/.exec(status)?.[1]),
      headers: Object.fromEntries(headers.map((line) => /^([a-z0-9-]+): (.*)$/.exec(line)?.slice(1) ?? [line, ''])),
      isCut,
    };
  });
}

/** What one step sent, and what the driver made of its answer. */
export interface GoldenStep {
  readonly sent: WireRequest;
  /** The files that it stored at the provider before. */
  readonly uploads: readonly UploadRequest[];
  readonly deltas: readonly ModelDelta[];
  readonly outcome: ModelOutcome;
}

/** A conversation as far as there are answers: each further step has the results of the calls before. */
export async function playCase(calls: ModelCalls, name: string, asked: Partial<ModelRequest>): Promise<GoldenStep[]> {
  const steps: GoldenStep[] = [];
  let { messages } = calls.request(asked);
  for (const [at, answer] of (await answersOf(calls.wire, name)).entries()) {
    const deltas: ModelDelta[] = [];
    calls.server.next(answer);
    const stored = calls.server.files.requests.length;
    const request = calls.request({ ...asked, callId: `mc_01arz3ndektsv4rrffq69g5fa${at}`, messages });
    const outcome = await calls.driver.call(request, NEVER, (delta) => deltas.push(delta));
    steps.push({ sent: calls.server.newest, uploads: calls.server.files.requests.slice(stored), deltas, outcome });
    if (outcome.kind === 'completed') messages = after(outcome, messages);
  }
  return steps;
}

/** A tool of this name returns a file. */
export const FILE_TOOL = 'take_picture';

/** The conversation after an answer, as a session keeps it: through JSON, with a result for each call. */
export function after(outcome: ModelOutcome, before: readonly ConversationMessage[]): ConversationMessage[] {
  if (outcome.kind === 'failed') throw new Error(outcome.error.code);
  const { text, toolCalls, thinking } = outcome;
  const said = { role: 'assistant', text, toolCalls, ...(thinking === undefined ? {} : { thinking }) };
  const results = toolCalls.map(({ callId, name, input }) => ({
    ...{ role: 'tool', callId, name, failed: false, output: { found: input } },
    ...(name === FILE_TOOL ? { files: [{ artifactId: 'dot.png', version: 1 }] } : {}),
  }));
  return [...before, ...(JSON.parse(JSON.stringify([said, ...results])) as ConversationMessage[])];
}

const FILES: Readonly<Record<string, { readonly contentType: string; readonly bytes: Buffer }>> = {
  'dot.png': {
    contentType: 'image/png',
    bytes: Buffer.from(
      'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==',
      'base64',
    ),
  },
  'page.pdf': { contentType: 'application/pdf', bytes: Buffer.from('%PDF-1.4\n%%EOF\n') },
  // Larger than what is sent with each call where files may be stored.
  'scan.pdf': { contentType: 'application/pdf', bytes: Buffer.from(`%PDF-1.4\n${'%'.repeat(1_048_576)}\n%%EOF\n`) },
  'notes.txt': { contentType: 'text/plain; charset=utf-8', bytes: Buffer.from('Buy milk.') },
};

/** The file whose name is the reference's id. */
export async function goldenFile({ artifactId }: FileRef): Promise<ModelFile | null> {
  const file = FILES[artifactId];
  if (file === undefined) return await Promise.resolve(null);
  const { contentType, bytes } = file;
  const read = async () => await Promise.resolve(bytes);
  return { name: artifactId, contentType, size: bytes.length, sha256: hash('sha256', bytes), read };
}

/** Headers that say who asks, with what, and in which form; the others are the connection's or say which version asks. */
const HEADERS = /^(content-type|accept|authorization|x-api-key|x-goog-(?!api-client).*|anthropic-.*|openai-.*)$/;

/** A step as its golden file has it. */
export function goldenOf({ sent, uploads, deltas, outcome }: GoldenStep, key: string): object {
  // What a token costs changes with the catalogue, which has its own tests.
  const { costUsd: _, ...usage } = outcome.usage;
  return {
    ...(uploads.length === 0 ? {} : { uploads: uploads.map((one) => requestOf(one, key)) }),
    request: requestOf(sent, key),
    deltas,
    outcome: { ...outcome, usage },
  };
}

function requestOf({ path: sentTo, headers, body }: UploadRequest, key: string): object {
  const kept = Object.keys(headers)
    .filter((name) => HEADERS.test(name))
    .toSorted()
    .map((name) => [
      name,
      String(headers[name])
        .replace(key, '<key>')
        .replace(/boundary=.*/, 'boundary=<boundary>'),
    ]);
  return { path: sentTo, headers: Object.fromEntries(kept), body };
}

/** A request in two: the conversation, without its end and the marks of what is cached, and all that stands around it. */
export function bytesOf({ text, body }: WireRequest): { readonly conversation: string; readonly rest: string } {
  const { messages, input, contents } = Object(body);
  const list = JSON.stringify(messages ?? input ?? contents);
  const at = text.indexOf(list);
  if (at < 0) throw new Error('the request is not written as JSON.stringify does');
  const plain = list.replaceAll(',"cache_control":{"type":"ephemeral"}', '');
  return { conversation: plain.slice(0, -1), rest: text.slice(0, at) + text.slice(at + list.length) };
}
