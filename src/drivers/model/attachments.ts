import type { LanguageModelV4FilePart, LanguageModelV4TextPart } from '@ai-sdk/provider';
import type { ConversationMessage } from '../../domain/turn/conversation.ts';
import type { ModelFile, ModelRequest, RemoteProvider } from './port.ts';

type Part = LanguageModelV4TextPart | LanguageModelV4FilePart;

/** What is sent in place of the files of a message, by message. */
export type Attachments = ReadonlyMap<ConversationMessage, readonly Part[]>;

/** Maximum bytes of files in one request, the newest messages first; older files are only mentioned. */
const BYTES_MAX = 20_971_520;
/** How much of a text file is shown; the rest is marked as cut. */
const TEXT_BYTES_MAX = 400_000;
/** Images that every provider accepts. */
const IMAGES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
/** Types that are text, besides `text/*`. */
const TEXTS = /^(text\/|application\/(json|xml|yaml|x-yaml|javascript|toml|x-ndjson|sql)$|[^;]*\+(json|xml)$)/;

/**
 * Reads the files that the messages name, as far as the provider understands them: text as text, images and (where the
 * provider accepts them) PDFs as they are. Everything else is only mentioned to the model.
 * @throws UnavailableError (objects)
 */
export async function attachmentsOf(provider: RemoteProvider, request: ModelRequest): Promise<Attachments> {
  const found = new Map<ConversationMessage, readonly Part[]>();
  let left = BYTES_MAX;
  for (const message of request.messages.toReversed()) {
    if (message.role !== 'user' || message.files === undefined) continue;
    const parts: Part[] = [];
    for (const ref of message.files) {
      const file = await request.file(ref);
      const fits = file !== null && file.read !== null && file.size <= left;
      if (fits) left -= file.size;
      parts.push(await partOf(provider, file, fits));
    }
    found.set(message, parts);
  }
  return found;
}

async function partOf(provider: RemoteProvider, file: ModelFile | null, fits: boolean): Promise<Part> {
  if (file === null) return text('(A file of this message has been deleted since.)');
  const { name, contentType, size, read } = file;
  const [mediaType = ''] = contentType.toLowerCase().split(';', 1);
  const told = `${name} (${contentType}, ${size} bytes)`;
  if (read !== null && fits && TEXTS.test(mediaType)) {
    const bytes = await read();
    const shown = new TextDecoder().decode(bytes.subarray(0, TEXT_BYTES_MAX));
    return text(`File ${told}:\n${shown}${bytes.length > TEXT_BYTES_MAX ? '\n(The rest of the file is cut.)' : ''}`);
  }
  if (read !== null && fits && understands(provider, mediaType)) {
    return { type: 'file', filename: name, mediaType, data: { type: 'data', data: await read() } };
  }
  return text(`(The file ${told} is part of this message, but cannot be shown to you.)`);
}

/** Servers that copy OpenAI's chat completions accept images at most. */
function understands(provider: RemoteProvider, mediaType: string): boolean {
  return IMAGES.includes(mediaType) || (mediaType === 'application/pdf' && provider !== 'openai-compatible');
}

function text(words: string): LanguageModelV4TextPart {
  return { type: 'text', text: words };
}
