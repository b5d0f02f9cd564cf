import { z } from 'zod';

const labels = z.record(z.string(), z.string());

const metadata = z.looseObject({
  name: z.string(),
  uid: z.string(),
  resourceVersion: z.string(),
  labels: labels.optional(),
  annotations: labels.optional(),
  /** It is being removed. */
  deletionTimestamp: z.string().optional(),
});

const condition = z.looseObject({
  type: z.string(),
  status: z.string(),
  reason: z.string().optional(),
  message: z.string().optional(),
});

const sandbox = z.looseObject({
  metadata,
  spec: z.looseObject({ operatingMode: z.enum(['Running', 'Suspended']).default('Running') }),
  status: z.looseObject({ conditions: z.array(condition).default([]) }).default({ conditions: [] }),
});

const variable = z.looseObject({ name: z.string(), value: z.string().optional() });
const pod = z.looseObject({
  metadata,
  spec: z.looseObject({
    containers: z.array(z.looseObject({ name: z.string(), env: z.array(variable).default([]) })),
  }),
  status: z
    .looseObject({
      phase: z.string().optional(),
      conditions: z.array(condition).default([]),
      podIPs: z.array(z.looseObject({ ip: z.string() })).default([]),
    })
    .default({ conditions: [], podIPs: [] }),
});

const plain = z.looseObject({ metadata, spec: z.unknown() });

/** What the Host reads of the objects that it works with. */
export const SCHEMAS = {
  sandboxes: sandbox,
  pods: pod,
  persistentvolumeclaims: plain,
  networkpolicies: plain,
} as const;

export type Resource = keyof typeof SCHEMAS;
export type ObjectOf<R extends Resource> = z.infer<(typeof SCHEMAS)[R]>;

/** Where the objects of a resource are served, before `/namespaces/…`. */
export const GROUPS: Readonly<Record<Resource, string>> = {
  sandboxes: 'apis/agents.x-k8s.io/v1beta1',
  pods: 'api/v1',
  persistentvolumeclaims: 'api/v1',
  networkpolicies: 'apis/networking.k8s.io/v1',
};

export const list = z.looseObject({
  metadata: z.looseObject({ resourceVersion: z.string(), continue: z.string().optional() }),
  items: z.array(z.unknown()),
});

/** One line of a watch: the object as it now is, or a Status in its place. */
export const watchEvent = z.looseObject({
  type: z.enum(['ADDED', 'MODIFIED', 'DELETED', 'BOOKMARK', 'ERROR']),
  object: z.looseObject({ code: z.number().optional(), message: z.string().optional() }),
});

/** How the server says that it has refused something, and how an exec has ended. */
export const status = z.looseObject({
  status: z.string().optional(),
  reason: z.string().optional(),
  message: z.string().optional(),
  code: z.number().optional(),
  details: z
    .looseObject({
      causes: z.array(z.looseObject({ reason: z.string().optional(), message: z.string().optional() })).optional(),
    })
    .nullish(),
});
