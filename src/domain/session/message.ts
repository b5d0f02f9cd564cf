import type { FileRef } from '../turn/conversation.ts';
import type { MessagePart } from './events.ts';

/** The text of a message command: its content, or its text parts joined by line breaks. */
export function messageText(message: {
  content?: string | undefined;
  parts?: readonly MessagePart[] | undefined;
}): string {
  const texts = (message.parts ?? []).flatMap((part) => (part.type === 'text' ? [part.text] : []));
  return message.content ?? texts.join('\n');
}

/** The files of a message command, in the order of its parts; absent: it has none. */
export function messageFiles(message: { parts?: readonly MessagePart[] | undefined }): readonly FileRef[] | undefined {
  const files = (message.parts ?? []).flatMap((part) =>
    part.type === 'file' ? [{ artifactId: part.artifactId, version: part.version }] : [],
  );
  return files.length === 0 ? undefined : files;
}
