import type { SessionSandboxes } from '#src/commands/sandbox/session-sandbox.ts';
import type { OpenSessionInput } from '#src/commands/session/open-session.ts';

/** For sessions whose agents use none. */
export const noSandboxes: SessionSandboxes = {
  prepare: async () => await Promise.resolve({ kind: 'done', sandbox: undefined }),
  leave: async () => await Promise.resolve(),
  fork: async () => await Promise.resolve({ kind: 'done', sandbox: undefined }),
  keepPromise: async () => await Promise.resolve(null),
};

/** What such a session says about its sandbox. */
export const noSandbox: OpenSessionInput['sandbox'] = {
  wanted: false,
  outOfReach: () => null,
  artifactReach: () => null,
};
