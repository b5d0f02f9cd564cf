import { z } from 'zod';
import { filesRef } from '../sandbox/events.ts';
import { podSpec, virtualSpec } from '../sandbox/spec.ts';

/** A session on the other side of a fork, and the position of the `session.forked` that began it on the parent. */
const forkRef = z.strictObject({ sessionId: z.string(), position: z.int() });

/** A part of an inherited history: a session's own records, from its creation to the last event that is inherited. */
const ancestor = z.strictObject({
  sessionId: z.string(),
  /** Number of the stream that holds it. */
  shard: z.int(),
  createdPosition: z.int(),
  position: z.int(),
  index: z.int(),
});

/** Where a fork comes from; fixed for as long as it lives. */
export const forkOrigin = z.strictObject({
  /** The session that it was forked from, which remembers it. */
  parent: forkRef,
  /** Oldest first; its own records come after all of them. Empty: the parent had none. */
  ancestry: z.array(ancestor),
  /** The last inherited record; `ancestor` is its number in the ancestry. */
  last: z.strictObject({ ancestor: z.int(), position: z.int(), index: z.int() }).nullable(),
});

/**
 * The sandbox of a fork, of its own: a virtual one with the files of its record, or a pod with those that the parent's began
 * with.
 */
const forkSandbox = z.strictObject({
  sandboxId: z.string(),
  /** Absent: virtual. */
  kind: z.literal('pod').optional(),
  spec: z.union([virtualSpec, podSpec]),
  files: filesRef.nullable(),
});
export type ForkSandbox = z.infer<typeof forkSandbox>;

export const forkEventSchemas = {
  /** A fork that may read this session's history begins: the session is not deleted before the fork. */
  'session.forked': z.strictObject({
    /** Of the child. */
    sessionId: z.string(),
    /**
     * Position of the deletion that freed the child's id, 0: it is new. Once the id has been used again, this fork is
     * void.
     */
    since: z.int(),
    /** The last record that the child inherits; absent: everything before this event. */
    at: z.strictObject({ ancestor: z.int().optional(), position: z.int(), index: z.int() }).optional(),
    /** What the child gets, whichever process opens it; absent: no sandbox. */
    sandbox: forkSandbox.optional(),
  }),
  /** The child no longer exists, or never did. */
  'session.fork.released': forkRef,
} as const;

export type ForkRef = z.infer<typeof forkRef>;
export type Ancestor = z.infer<typeof ancestor>;
export type ForkOrigin = z.infer<typeof forkOrigin>;
