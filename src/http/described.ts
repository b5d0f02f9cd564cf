import { optional } from '../domain/kernel/optional.ts';

/** The groups of operations in the document, in the order in which it shows them. */
export const TAGS = {
  Sessions: 'Conversations with an agent: their commands, their history, and what people have to answer.',
  Agents: 'Definitions of agents and their versions.',
  Artifacts: 'Files and folders that sessions work with, each with its versions.',
  Vaults: 'Credentials of people, for the servers that agents call.',
  Sandboxes: 'Where the built-in tools of an agent run, and the files that they work on.',
  Executors: 'Programs that run the tools and hooks of an agent.',
  Models: 'Which model a tenant uses, and the credentials for it.',
  'Model calls': 'What model calls used, and what they may cost.',
  Tenant: 'Settings, keys and the audit trail of a tenant.',
  Admin: 'Tenants and nodes, for the operator of the Host.',
  Host: 'Health, readiness, and who the caller is.',
} as const;

export type Tag = keyof typeof TAGS;

/** What a route's schema says of its operation besides shapes. */
export interface Described {
  readonly operationId: string;
  readonly tags: readonly Tag[];
  readonly summary: string;
  readonly description?: string;
}

/**
 * The descriptions of a file's operations, by operationId; a route spreads its own into its schema. A route without one does
 * not start, so the document names them all.
 */
export function operations<T extends Readonly<Record<string, readonly [summary: string, description?: string]>>>(
  tag: Tag,
  texts: T,
): { readonly [K in keyof T]: Described };
export function operations(
  tag: Tag,
  texts: Readonly<Record<string, readonly [summary: string, description?: string]>>,
): Record<string, Described> {
  const described = Object.entries(texts).map(([operationId, [summary, description]]) => [
    operationId,
    { operationId, tags: [tag], summary, ...optional({ description }) },
  ]);
  return Object.fromEntries(described);
}

/** What a route sends that is not JSON: a file (with ranges), an archive made on the way, or server-sent events. */
export type Sends = 'file' | 'archive' | 'records' | 'work';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Absent: JSON. */
    sends?: Sends;
  }
}
