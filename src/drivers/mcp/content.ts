import type { CallToolResult, ContentBlock } from '@modelcontextprotocol/client';
import { valueProblem } from '../../domain/kernel/json-schema.ts';
import { cut, isDeeper, LIMITS } from './limits.ts';
import type { McpContent, McpObject, McpOutcome } from './port.ts';

/** A server's result as far as it is one, checked against the schema that it declared. */
export function resultOf(sent: CallToolResult, outputSchema: McpObject | null): McpOutcome {
  const isError = sent.isError === true;
  const structured: unknown = sent.structuredContent ?? null;
  const problem = isError
    ? depthProblem(structured)
    : (depthProblem(structured) ?? schemaProblemOf(sent, outputSchema));
  if (problem !== null) {
    const message = `The tool has run, but its answer cannot be used: ${cut(problem, 300)}. Do not assume what it did.`;
    return { kind: 'failed', code: 'invalid_answer', message, mayHaveHappened: true };
  }
  const kept = sent.content.length > LIMITS.parts ? sent.content.slice(0, LIMITS.parts - 1) : sent.content;
  const content = kept.map(partOf);
  const left = sent.content.length - kept.length;
  if (left > 0) content.push({ type: 'text', text: `(${left} more parts were left out)` });
  return { kind: 'result', content, structured, isError };
}

function depthProblem(structured: unknown): string | null {
  return isDeeper(structured, LIMITS.valueDepth) ? 'its structured content is nested too deeply' : null;
}

function schemaProblemOf({ structuredContent }: CallToolResult, schema: McpObject | null): string | null {
  if (schema === null) return null;
  if (structuredContent === undefined) return 'it has no structured content, which its output schema promises';
  const problem = valueProblem(schema, structuredContent);
  return problem === null ? null : `its structured content does not match its output schema: ${problem}`;
}

function partOf(block: ContentBlock): McpContent {
  switch (block.type) {
    case 'text':
      return { type: 'text', text: block.text };
    case 'image':
    case 'audio':
      return { type: 'media', contentType: cut(block.mimeType, 200), bytes: Buffer.from(block.data, 'base64') };
    case 'resource': {
      const { resource } = block;
      const bytes = 'text' in resource ? Buffer.from(resource.text) : Buffer.from(resource.blob, 'base64');
      return { type: 'resource', uri: cut(resource.uri, 2_000), contentType: typeOf(resource.mimeType), bytes };
    }
    case 'resource_link':
      return {
        type: 'link',
        uri: cut(block.uri, 2_000),
        name: cut(block.name, 200),
        contentType: typeOf(block.mimeType),
      };
  }
}

function typeOf(mimeType: string | undefined): string | null {
  return mimeType === undefined ? null : cut(mimeType, 200);
}
