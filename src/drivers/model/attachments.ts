import type { LanguageModelV4FilePart, LanguageModelV4TextPart } from '@ai-sdk/provider';
import type { ConversationMessage, FileRef } from '../../domain/turn/conversation.ts';
import { imageType, isPdf } from './file-types.ts';
import type { ModelFile, ModelRequest, RemoteProvider } from './port.ts';
import type { CallUploads, Uploaded } from './uploads.ts';

type Part = LanguageModelV4TextPart | LanguageModelV4FilePart;
type Naming = Extract<ConversationMessage, { files?: readonly FileRef[] }>;

/** What is sent in place of the files of a message or of a tool's result, by message. */
export type Attachments = ReadonlyMap<ConversationMessage, readonly Part[]>;

/** Of files in one request, the newest first; older ones are only mentioned. */
const BYTES_MAX = 20_971_520;
const FILES_MAX = 64;
/**
 * What files are left out in: a prompt that loses its oldest file with each step would have another beginning each time,
 * and none of it would be found in a provider's cache.
 */
const LEFT_OUT_BYTES = BYTES_MAX / 2;
/** How much of a text file is shown; the rest is marked as cut. Of those that tools return, no person chose each. */
const TEXT_BYTES_MAX = { user: 400_000, tool: 32_768 };
/** Claude refuses the whole request for an image above 5 MiB of base64. */
const CLAUDE_IMAGE_BYTES_MAX = 3_932_160;
/** Types that are text, besides `text/*`. */
const TEXTS = /^(text\/|application\/(json|xml|yaml|x-yaml|javascript|toml|x-ndjson|sql)$|[^;]*\+(json|xml)$)/;

const PDF = 'application/pdf';

/** A file that a message names; null: it has been deleted. */
interface Named {
  readonly message: Naming;
  readonly file: ModelFile | null;
}

/**
 * Reads the files that messages and results of tools name, as far as the provider understands them: text as text, images
 * and (where the provider accepts them) PDFs as they are. Everything else is only mentioned to the model.
 * @param uploads where large ones are stored and named by an id; null: all are sent with the call
 * @throws UnavailableError (objects)
 */
export async function attachmentsOf(
  provider: RemoteProvider,
  request: ModelRequest,
  uploads: CallUploads | null,
): Promise<Attachments> {
  const named: Named[] = [];
  for (const message of request.messages) {
    if (message.role === 'assistant' || message.files === undefined) continue;
    for (const ref of message.files) named.push({ message, file: await request.file(ref) });
  }
  const found = new Map<ConversationMessage, Part[]>();
  const first = firstShown(named);
  for (const [at, { message, file }] of named.entries()) {
    const parts = found.get(message) ?? [];
    const shown = at < first && file !== null ? { ...file, read: null } : file;
    parts.push(await partOf({ provider, role: message.role, uploads }, shown));
    found.set(message, parts);
  }
  return found;
}

/** From where on files are sent: all after it are within the limits. */
function firstShown(named: readonly Named[]): number {
  const weights = named.map(({ file }) => (file?.read ? Math.max(file.size, BYTES_MAX / FILES_MAX) : 0));
  const excess = weights.reduce((sum, one) => sum + one, 0) - BYTES_MAX;
  const leftOut = Math.ceil(Math.max(0, excess) / LEFT_OUT_BYTES) * LEFT_OUT_BYTES;
  let [first, gone] = [0, 0];
  while (gone < leftOut && first < named.length - 1) {
    gone += weights[first] ?? 0;
    first += 1;
  }
  return first;
}

/** Whom a file is for, and where it stands in the conversation. */
interface Place {
  readonly provider: RemoteProvider;
  readonly role: Naming['role'];
  readonly uploads: CallUploads | null;
}

async function partOf(place: Place, file: ModelFile | null): Promise<Part> {
  const { role } = place;
  const whole = role === 'user' ? 'message' : 'result';
  if (file === null) return text(`(A file of this ${whole} has been deleted since.)`);
  const { name, contentType, size, read } = file;
  const mediaType = mediaTypeOf(contentType);
  const told = `${name} (${contentType}, ${size} bytes)`;
  if (read !== null && TEXTS.test(mediaType)) {
    const bytes = await read();
    const shown = new TextDecoder().decode(bytes.subarray(0, TEXT_BYTES_MAX[role]));
    return text(
      `File ${told}:\n${shown}${bytes.length > TEXT_BYTES_MAX[role] ? '\n(The rest of the file is cut.)' : ''}`,
    );
  }
  const shown = read !== null && mayUnderstand(place, { mediaType, size }) ? await sentOf(place, file, read) : null;
  return shown ?? text(`(The file ${told} is part of this ${whole}, but cannot be shown to you.)`);
}

/** Null: it is not what it is said to be. */
async function sentOf(
  { role, uploads }: Place,
  file: ModelFile,
  read: NonNullable<ModelFile['read']>,
): Promise<Part | null> {
  const to = uploads?.takes(file, role) === true ? uploads : null;
  const known = to?.find(file) ?? null;
  if (known !== null) return byId(known);
  const data = await read();
  const mediaType = sentAs(file.contentType, data);
  if (mediaType === null) return null;
  const filename = mediaType === PDF && !/\.pdf$/i.test(file.name) ? `${file.name}.pdf` : file.name;
  const stored = (await to?.store(file, { filename, mediaType, data })) ?? null;
  return stored === null ? { type: 'file', filename, mediaType, data: { type: 'data', data } } : byId(stored);
}

function byId({ mediaType, reference }: Uploaded): LanguageModelV4FilePart {
  return { type: 'file', mediaType, data: { type: 'reference', reference } };
}

/** Servers that copy OpenAI's chat completions accept images at most, and results of text only. */
function mayUnderstand(
  { provider, role }: Place,
  { mediaType, size }: { readonly mediaType: string; readonly size: number },
): boolean {
  if (mediaType === PDF) return provider !== 'openai-compatible';
  if (!mediaType.startsWith('image/')) return false;
  if (provider === 'openai-compatible') return role === 'user';
  return provider !== 'anthropic' || size <= CLAUDE_IMAGE_BYTES_MAX;
}

/**
 * The type by the bytes themselves; null: they are not what they are said to be. A provider refuses the whole request for
 * one such file, and so each later one of the session.
 */
function sentAs(contentType: string, bytes: Uint8Array): string | null {
  const mediaType = mediaTypeOf(contentType);
  if (mediaType === PDF) return isPdf(bytes) ? mediaType : null;
  return imageType(bytes);
}

function mediaTypeOf(contentType: string): string {
  return contentType.toLowerCase().split(';', 1)[0] ?? '';
}

function text(words: string): LanguageModelV4TextPart {
  return { type: 'text', text: words };
}
