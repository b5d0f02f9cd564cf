/** What a node does; docs/operations/running.md says what one without a role lacks. */
export const ROLES = ['commands', 'reads', 'projector', 'engine'] as const;
export type Role = (typeof ROLES)[number];

/** What AGENT_HOST_ROLES takes. The console is none of the work of a node: it asks a Host as any client does. */
export const NAMED_ROLES = [...ROLES, 'console'] as const;
