import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { Wire, WireError } from './model-wire.ts';

/** A request about files, its body as far as it is JSON or a form. */
export interface UploadRequest {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: unknown;
}

export interface UploadAnswer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: unknown;
}

interface Asked {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly bytes: Buffer;
  /** Of the server itself. */
  readonly origin: string;
}

const CREATED_AT = 1_767_225_600;
const GOOGLE = 'https://generativelanguage.googleapis.com/v1beta';

/** The files of OpenAI and of Google: how they are stored, and what is said of one that is not there. */
export class StoredFiles {
  readonly requests: UploadRequest[] = [];
  /** Whether uploads are refused. */
  isClosed = false;
  /** Whether what is stored is gone at once. */
  isForgetful = false;
  /** Where Google's uploads are sent to; null: here. */
  uploadsTo: string | null = null;
  readonly #wire: Wire;
  readonly #stored = new Set<string>();
  #count = 0;

  constructor(wire: Wire) {
    this.#wire = wire;
  }

  /** They have ended, or were deleted at the provider. */
  lose(): void {
    this.#stored.clear();
  }

  isFor(path: string): boolean {
    return path === '/v1/files' || path.startsWith('/upload/');
  }

  answer(asked: Asked): UploadAnswer {
    const body = contentOf(asked);
    const { path, headers, origin } = asked;
    this.requests.push({ path, headers, body });
    if (this.isClosed) return { status: 403, body: { error: { message: 'Files are not for this key.' } } };
    if (this.#wire === 'google' && headers['x-goog-upload-command'] === 'start') {
      const url = `${this.uploadsTo ?? origin}/upload/v1beta/files?upload_id=u1`;
      return { status: 200, headers: { 'x-goog-upload-url': url }, body: {} };
    }
    this.#count += 1;
    const answer = this.#wire === 'google' ? googleFile(this.#count) : openaiFile(this.#count, asked.bytes.length);
    if (!this.isForgetful) this.#stored.add(answer.id);
    return { status: 200, body: answer.body };
  }

  /** What a call is answered that names a file which is not there. */
  refusal(text: string): WireError | null {
    const named = [...text.matchAll(/"(?:file_id|fileUri)":"([^"]+)"/g)].map(([, id]) => id ?? '');
    const gone = named.find((id) => !this.#stored.has(id));
    if (gone === undefined) return null;
    if (this.#wire === 'google') {
      const message = `You do not have permission to access the File ${gone.split('/').at(-1)} or it may not exist.`;
      return { status: 403, type: 'PERMISSION_DENIED', message };
    }
    return { status: 400, type: 'invalid_request_error', message: `Files [${gone}] were not found.` };
  }
}

function openaiFile(count: number, bytes: number): { id: string; body: unknown } {
  const id = `file-${String(count).padStart(4, '0')}`;
  const times = { created_at: CREATED_AT, expires_at: CREATED_AT + 172_800 };
  return {
    id,
    body: { id, object: 'file', bytes, ...times, filename: 'f', purpose: 'user_data', status: 'processed' },
  };
}

function googleFile(count: number): { id: string; body: unknown } {
  const name = `files/f${String(count).padStart(4, '0')}`;
  const uri = `${GOOGLE}/${name}`;
  const file = { name, uri, mimeType: 'application/pdf', state: 'ACTIVE', expirationTime: '2026-01-03T00:00:00Z' };
  return { id: uri, body: { file } };
}

/** A form by its fields; of a file what says which it is. */
function contentOf({ headers, bytes }: Asked): unknown {
  const type = headers['content-type'] ?? '';
  if (type.startsWith('application/json')) return JSON.parse(bytes.toString());
  if (!type.startsWith('multipart/form-data')) return digestOf(bytes);
  return formOf(bytes, type.split('boundary=')[1] ?? '');
}

function formOf(bytes: Buffer, boundary: string): unknown {
  // One character a byte, so that files come out as they went in.
  const parts = bytes.toString('latin1').split(`--${boundary}`).slice(1, -1);
  const fields = parts.map((part) => {
    const [head = '', ...rest] = part.slice(2, -2).split('\r\n\r\n');
    const value = rest.join('\r\n\r\n');
    const name = / name="([^"]*)"/.exec(head)?.[1] ?? '';
    const filename = /filename="([^"]*)"/.exec(head)?.[1];
    if (filename === undefined) return [name, value];
    const mediaType = /content-type: (.*)/i.exec(head)?.[1];
    return [name, { filename, mediaType, ...digestOf(Buffer.from(value, 'latin1')) }];
  });
  return Object.fromEntries(fields);
}

function digestOf(bytes: Buffer): { readonly bytes: number; readonly sha256: string } {
  return { bytes: bytes.length, sha256: createHash('sha256').update(bytes).digest('hex') };
}
