import { availableParallelism } from 'node:os';
import ipaddr from 'ipaddr.js';
import { z } from 'zod';
import { optional } from '../domain/kernel/optional.ts';
import type { ArtifactLimits } from '../domain/quota/decide.ts';
import { WORKSPACE_LIMITS } from '../domain/sandbox/manifest.ts';
import type { WorkspaceLimits } from '../domain/sandbox/manifest.ts';
import type { S3Options } from '../drivers/objects/s3.ts';
import { BODY_BYTES_MAX } from '../drivers/sandbox/frames.ts';
import { ARTIFACT_FILE_BYTES_MAX } from '../http/wire/artifacts.ts';
import type { UploadLimits } from '../http/upload-body.ts';
import { egressPolicy, EgressSyntaxError } from '../lib/egress.ts';
import type { EgressPolicy } from '../lib/egress.ts';
import type { ModelPatience } from './models.ts';
import { processesByDefault, PROCESSES_MAX } from './processes/plan.ts';
import { consoleOf, consoleVariables } from './console-config.ts';
import type { ConsoleConfig } from './console-config.ts';
import { podsOf, podVariables } from './pod-config.ts';
import type { PodConfig } from './pod-config.ts';
import { NAMED_ROLES, ROLES } from './roles.ts';
import type { Role } from './roles.ts';
import { withSecretFiles } from './secret-files.ts';
import { addressOf, httpAddress, listen, oneOf, whole } from './variables.ts';
import type { Address } from './variables.ts';
import { StartError } from '../lib/start-error.ts';

const networks = z
  .string()
  .transform((text) => text.split(',').map((part) => part.trim()))
  .refine((parts) => parts.every((part) => ipaddr.isValid(part) || ipaddr.isValidCIDR(part)), {
    error: 'must be IP addresses or networks such as 10.1.0.0/16, separated by commas',
  });

/** A tenant's default share of the turns of a process. */
const TENANT_SHARE = 0.75;

/** Everything that can be configured; docs/operations/running.md explains each. */
const schema = z.object({
  AGENT_HOST_LISTEN: listen.default('127.0.0.1:7070'),
  AGENT_HOST_METRICS_LISTEN: listen.default('127.0.0.1:0'),
  ...consoleVariables,
  AGENT_HOST_DATA_DIR: z.string().min(1).default('./.data'),
  AGENT_HOST_ADMIN_KEY: z.string().min(16, 'must have 16 characters or more').optional(),
  AGENT_HOST_ROLES: z
    .string()
    .transform((text) => text.split(',').map((role) => role.trim()))
    .pipe(z.array(oneOf(NAMED_ROLES)).min(1))
    .optional(),
  AGENT_HOST_PROCESSES: whole(1, PROCESSES_MAX).optional(),
  AGENT_HOST_KEK_FILE: z.string().min(1).optional(),
  NATS_URL: z.string().min(1).optional(),
  NATS_CA_FILE: z.string().min(1).optional(),
  DATABASE_URL: z.string().min(1).optional(),
  AGENT_HOST_DATABASE_CONNECTIONS: whole(2, 10_000).optional(),
  AGENT_HOST_LOG_SHARDS: whole(1, 64).optional(),
  AGENT_HOST_LOG_REPLICAS: whole(1, 5).default(1),
  AGENT_HOST_EGRESS: z.string().optional(),
  AGENT_HOST_FIXTURE_MODEL: oneOf(['0', '1']).default('0'),
  AGENT_HOST_LOG_LEVEL: oneOf(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent']).default('info'),
  AGENT_HOST_BODY_BYTES: whole(1_024, 3_500_000).default(1_048_576),
  AGENT_HOST_TURNS: whole(1, 10_000).default(256),
  AGENT_HOST_TURNS_PER_TENANT: whole(1, 10_000).optional(),
  AGENT_HOST_LEASE_SECONDS: whole(1, 3_600).default(30),
  AGENT_HOST_STREAM_BUFFER_BYTES: whole(4_096, 67_108_864).default(262_144),
  AGENT_HOST_STREAM_TOTAL_BYTES: whole(1_048_576, 1_099_511_627_776).default(268_435_456),
  AGENT_HOST_STREAM_SLOW_SECONDS: whole(1, 600).default(30),
  AGENT_HOST_STREAMS_PER_TENANT: whole(1, 1_000_000).default(20_000),
  AGENT_HOST_RATE_PER_CREDENTIAL: whole(1, 1_000_000).default(20_000),
  AGENT_HOST_RATE_PER_TENANT: whole(1, 1_000_000).default(50_000),
  AGENT_HOST_FAILED_AUTH_PER_SECOND: whole(1, 100_000).default(200),
  AGENT_HOST_ACCESS_LOG: oneOf(['0', '1']).default('0'),
  AGENT_HOST_TRUSTED_PROXIES: networks.default([]),
  AGENT_HOST_HEADERS_SECONDS: whole(1, 600).default(15),
  AGENT_HOST_REQUEST_SECONDS: whole(1, 3_600).default(60),
  AGENT_HOST_DRAIN_SECONDS: whole(0, 60).default(0),
  AGENT_HOST_CACHE_MIB: whole(8, 65_536).default(256),
  AGENT_HOST_OBJECTS_DIR: z.string().min(1).optional(),
  S3_ENDPOINT: httpAddress.optional(),
  S3_BUCKET: z.string().min(1).optional(),
  S3_REGION: z.string().min(1).default('us-east-1'),
  S3_ACCESS_KEY_ID: z.string().min(1).optional(),
  S3_SECRET_ACCESS_KEY: z.string().min(1).optional(),
  S3_ADDRESSING: oneOf(['path', 'virtual']).optional(),
  AGENT_HOST_ARTIFACT_FILE_BYTES: whole(0, ARTIFACT_FILE_BYTES_MAX).default(104_857_600),
  AGENT_HOST_ARTIFACT_TOTAL_BYTES: whole(0, 2 ** 50).default(10_737_418_240),
  AGENT_HOST_UPLOADS: whole(1, 100_000).default(256),
  AGENT_HOST_UPLOADS_PER_TENANT: whole(1, 100_000).default(64),
  AGENT_HOST_UPLOADS_PER_SUBJECT: whole(1, 100_000).default(8),
  AGENT_HOST_UPLOAD_BYTES_PER_SECOND: whole(1, 1_073_741_824).default(1_024),
  AGENT_HOST_UPLOAD_BUFFER_MIB: whole(10, 65_536).default(256),
  AGENT_HOST_UPLOAD_SECONDS: whole(1, 86_400).default(3_600),
  AGENT_HOST_UPLOAD_SILENCE_SECONDS: whole(1, 3_600).default(60),
  AGENT_HOST_MODEL_FIRST_TOKEN_SECONDS: whole(1, 3_600).default(60),
  AGENT_HOST_MODEL_SILENCE_SECONDS: whole(1, 3_600).default(60),
  AGENT_HOST_MODEL_CALL_SECONDS: whole(1, 86_400).default(600),
  AGENT_HOST_OPERATION_SECONDS: whole(1, 3_600).default(30),
  AGENT_HOST_STRAY_SECONDS: whole(1, 31_536_000).default(86_400),
  AGENT_HOST_SANDBOX_CHILDREN: whole(1, 256).optional(),
  AGENT_HOST_SANDBOX_CHILDREN_PER_TENANT: whole(1, 256).optional(),
  AGENT_HOST_SANDBOX_CHILDREN_IDLE: whole(1, 1_024).optional(),
  AGENT_HOST_SANDBOX_MEMORY_MIB: whole(64, 4_096).default(256),
  AGENT_HOST_SANDBOX_BUBBLEWRAP: oneOf(['auto', 'required', 'off']).default('auto'),
  ...podVariables,
  AGENT_HOST_SANDBOX_FILES: whole(1, 20_000).default(WORKSPACE_LIMITS.files),
  AGENT_HOST_SANDBOX_FILE_BYTES: whole(1_024, BODY_BYTES_MAX).default(WORKSPACE_LIMITS.fileBytes),
  AGENT_HOST_SANDBOX_TOTAL_BYTES: whole(1_024, 1_073_741_824).default(WORKSPACE_LIMITS.totalBytes),
  OTEL_SDK_DISABLED: oneOf(['true', 'false']).default('false'),
  OTEL_TRACES_EXPORTER: oneOf(['otlp', 'none']).optional(),
  OTEL_EXPORTER_OTLP_PROTOCOL: oneOf(['http/protobuf']).optional(),
  OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: oneOf(['http/protobuf']).optional(),
  OTEL_EXPORTER_OTLP_ENDPOINT: httpAddress.optional(),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: httpAddress.optional(),
  OTEL_SERVICE_NAME: z.string().optional(),
  OTEL_RESOURCE_ATTRIBUTES: z.string().default(''),
  /** For the crash tests: named instants at which the process kills itself (lib/fault-points.ts). */
  AGENT_HOST_FAULT_POINTS: z.string().optional(),
});

/** Names of all variables that are read; those in SECRET_VARIABLES also with `_FILE`. */
export const VARIABLES: readonly string[] = Object.keys(schema.shape);

export interface ArtifactConfig {
  readonly limits: ArtifactLimits;
  readonly uploads: UploadLimits;
  readonly operationMs: number;
  readonly orphanMs: number;
}

/** Sandboxes without a machine, and pods. */
export interface SandboxConfig {
  readonly pods: PodConfig;
  /** Commands that run at once on this node, and those of one tenant. */
  readonly children: number;
  readonly childrenPerTenant: number;
  /** Processes of commands that stay ready besides. */
  readonly childrenIdle: number;
  readonly memoryMiB: number;
  readonly bubblewrap: 'auto' | 'required' | 'off';
  readonly limits: WorkspaceLimits;
}

export interface Config {
  readonly listen: Address;
  readonly metricsListen: Address;
  /** Null: this node has no console. */
  readonly console: ConsoleConfig | null;
  readonly dataDir: string;
  readonly adminKey: string | undefined;
  /** Where the Host's key is kept; absent: an embedded Host makes and keeps its own. */
  readonly kekFile: string | undefined;
  /** None: it has a console only. */
  readonly roles: readonly Role[];
  /** How many processes share the work and the port. */
  readonly processes: number;
  readonly natsUrl: string | undefined;
  /** CA certificates (PEM) that a NATS server's must be signed by; absent: the system's. */
  readonly natsCaFile: string | undefined;
  readonly databaseUrl: string | undefined;
  /** Most Postgres connections of this node; absent: by its roles (`poolSize`). */
  readonly databaseConnections: number | undefined;
  /** Of one of several processes of a Host: how many serve requests, and share the connections; absent: it is the only one. */
  readonly servingProcesses: number | undefined;
  /** Streams of the log; undefined: as many as there are. */
  readonly shards: number | undefined;
  readonly replicas: number;
  /** Which addresses the Host calls when a tenant names them. */
  readonly egress: EgressPolicy;
  readonly fixtureModel: boolean;
  readonly logLevel: string;
  readonly bodyBytesMax: number;
  readonly turns: number;
  /** A tenant's turns while no other has any. */
  readonly turnsPerTenant: number;
  /** How long a claim of an executor is good for without a heartbeat. */
  readonly leaseMs: number;
  readonly stream: {
    readonly bufferBytes: number;
    readonly totalBytes: number;
    readonly slowMs: number;
    readonly perTenantMax: number;
  };
  readonly fairness: {
    readonly credentialPerSecond: number;
    readonly tenantPerSecond: number;
    readonly failuresPerSecond: number;
  };
  /** Whether each answered request has a line in the log. */
  readonly accessLog: boolean;
  /** Proxies trusted to say whom they forward for. */
  readonly trustedProxies: readonly string[];
  /** Time for a client to send its headers, and its whole request. */
  readonly timeouts: { readonly headersMs: number; readonly requestMs: number; readonly uploadMs: number };
  /** How long a stopping node reports not ready before it refuses connections. */
  readonly drainMs: number;
  /** How long providers of models are waited for. */
  readonly models: ModelPatience;
  readonly artifacts: ArtifactConfig;
  readonly sandboxes: SandboxConfig;
  /** Absent: `objects` in the data directory. Nodes of one Host share it, or use S3. */
  readonly objectsDir: string | undefined;
  /** Null: objects are in a directory. */
  readonly s3: S3Options | null;
  readonly cacheBytes: number;
  readonly faultPoints: string | undefined;
  /** Attributes of this service for traces; null: none are exported. */
  readonly traces: Readonly<Record<string, string>> | null;
  /** What the embedded parts look up (NATS_SERVER_BIN, PATH, cache directories). */
  readonly environment: Readonly<Record<string, string | undefined>>;
}

/** The environment as a frozen configuration; an empty variable counts as absent. @throws StartError */
export function readConfig(environment: Readonly<Record<string, string | undefined>>): Config {
  const present = Object.fromEntries(
    Object.entries(withSecretFiles(environment)).filter(([, value]) => value !== undefined && value !== ''),
  );
  const parsed = schema.safeParse(present);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new StartError(
      `${String(issue?.path[0] ?? 'the environment')} ${issue?.message ?? 'is invalid'}; correct it and start again`,
    );
  }
  const env = parsed.data;
  const named = env.AGENT_HOST_ROLES;
  const roles = ROLES.filter((role) => named?.includes(role) ?? true);
  return Object.freeze({
    listen: addressOf(env.AGENT_HOST_LISTEN),
    metricsListen: addressOf(env.AGENT_HOST_METRICS_LISTEN),
    console: consoleOf(env, { named, isEmbedded: env.NATS_URL === undefined }),
    dataDir: env.AGENT_HOST_DATA_DIR,
    adminKey: env.AGENT_HOST_ADMIN_KEY,
    kekFile: env.AGENT_HOST_KEK_FILE,
    roles,
    processes: env.AGENT_HOST_PROCESSES ?? processesByDefault(availableParallelism(), roles),
    natsUrl: env.NATS_URL,
    natsCaFile: env.NATS_CA_FILE,
    databaseUrl: env.DATABASE_URL,
    databaseConnections: env.AGENT_HOST_DATABASE_CONNECTIONS,
    servingProcesses: undefined,
    shards: env.AGENT_HOST_LOG_SHARDS,
    replicas: env.AGENT_HOST_LOG_REPLICAS,
    egress: egressOf(env),
    fixtureModel: env.AGENT_HOST_FIXTURE_MODEL === '1',
    logLevel: env.AGENT_HOST_LOG_LEVEL,
    bodyBytesMax: env.AGENT_HOST_BODY_BYTES,
    turns: env.AGENT_HOST_TURNS,
    turnsPerTenant: Math.min(
      env.AGENT_HOST_TURNS,
      env.AGENT_HOST_TURNS_PER_TENANT ?? Math.ceil(env.AGENT_HOST_TURNS * TENANT_SHARE),
    ),
    leaseMs: env.AGENT_HOST_LEASE_SECONDS * 1000,
    stream: streamsOf(env),
    fairness: {
      credentialPerSecond: env.AGENT_HOST_RATE_PER_CREDENTIAL,
      tenantPerSecond: env.AGENT_HOST_RATE_PER_TENANT,
      failuresPerSecond: env.AGENT_HOST_FAILED_AUTH_PER_SECOND,
    },
    accessLog: env.AGENT_HOST_ACCESS_LOG === '1',
    trustedProxies: env.AGENT_HOST_TRUSTED_PROXIES,
    timeouts: {
      // The headers are part of the request, so they get no more time than it.
      headersMs: Math.min(env.AGENT_HOST_HEADERS_SECONDS, env.AGENT_HOST_REQUEST_SECONDS) * 1000,
      requestMs: env.AGENT_HOST_REQUEST_SECONDS * 1000,
      uploadMs: env.AGENT_HOST_UPLOAD_SECONDS * 1000,
    },
    drainMs: env.AGENT_HOST_DRAIN_SECONDS * 1000,
    models: {
      firstTokenMs: env.AGENT_HOST_MODEL_FIRST_TOKEN_SECONDS * 1000,
      silenceMs: env.AGENT_HOST_MODEL_SILENCE_SECONDS * 1000,
      callMs: env.AGENT_HOST_MODEL_CALL_SECONDS * 1000,
    },
    artifacts: artifactsOf(env),
    sandboxes: sandboxesOf(env),
    objectsDir: env.AGENT_HOST_OBJECTS_DIR,
    s3: s3Of(env, Object.keys(present)),
    cacheBytes: env.AGENT_HOST_CACHE_MIB * 1_048_576,
    faultPoints: env.AGENT_HOST_FAULT_POINTS,
    traces: tracesOf(env),
    environment,
  });
}

/** What readers of streams may hold of a node. */
function streamsOf(env: z.infer<typeof schema>): Config['stream'] {
  return {
    bufferBytes: env.AGENT_HOST_STREAM_BUFFER_BYTES,
    totalBytes: env.AGENT_HOST_STREAM_TOTAL_BYTES,
    slowMs: env.AGENT_HOST_STREAM_SLOW_SECONDS * 1000,
    perTenantMax: env.AGENT_HOST_STREAMS_PER_TENANT,
  };
}

/** Uploads, and what is kept of them. */
function artifactsOf(env: z.infer<typeof schema>): ArtifactConfig {
  return {
    limits: {
      fileBytes: env.AGENT_HOST_ARTIFACT_FILE_BYTES,
      totalBytes: env.AGENT_HOST_ARTIFACT_TOTAL_BYTES,
    },
    uploads: {
      concurrent: env.AGENT_HOST_UPLOADS,
      perTenant: env.AGENT_HOST_UPLOADS_PER_TENANT,
      perSubject: env.AGENT_HOST_UPLOADS_PER_SUBJECT,
      silenceMs: env.AGENT_HOST_UPLOAD_SILENCE_SECONDS * 1000,
      leastBytesPerSecond: env.AGENT_HOST_UPLOAD_BYTES_PER_SECOND,
      memoryBytes: env.AGENT_HOST_UPLOAD_BUFFER_MIB * 1_048_576,
    },
    operationMs: env.AGENT_HOST_OPERATION_SECONDS * 1000,
    orphanMs: env.AGENT_HOST_STRAY_SECONDS * 1000,
  };
}

/** By default a command has half a core, and a tenant half the commands. */
function sandboxesOf(env: z.infer<typeof schema>): SandboxConfig {
  const children = env.AGENT_HOST_SANDBOX_CHILDREN ?? 2 * availableParallelism();
  const perTenant = env.AGENT_HOST_SANDBOX_CHILDREN_PER_TENANT ?? Math.ceil(children / 2);
  return {
    children,
    childrenPerTenant: Math.min(children, perTenant),
    childrenIdle: env.AGENT_HOST_SANDBOX_CHILDREN_IDLE ?? 2 * children,
    memoryMiB: env.AGENT_HOST_SANDBOX_MEMORY_MIB,
    bubblewrap: env.AGENT_HOST_SANDBOX_BUBBLEWRAP,
    pods: podsOf(env),
    limits: {
      files: env.AGENT_HOST_SANDBOX_FILES,
      fileBytes: env.AGENT_HOST_SANDBOX_FILE_BYTES,
      totalBytes: env.AGENT_HOST_SANDBOX_TOTAL_BYTES,
    },
  };
}

/** On one machine, loopback has the operator's own model server; in a cluster, other people's services. */
function egressOf({ AGENT_HOST_EGRESS: text, NATS_URL: natsUrl }: z.infer<typeof schema>): EgressPolicy {
  try {
    return egressPolicy(text ?? (natsUrl === undefined ? 'public,loopback' : 'public'));
  } catch (error) {
    if (error instanceof EgressSyntaxError)
      throw new StartError(`AGENT_HOST_EGRESS ${error.message}`, { cause: error });
    throw error;
  }
}

/** On with an address, or on request; what else the exporter reads from the environment is its own business. */
function tracesOf(env: z.infer<typeof schema>): Readonly<Record<string, string>> | null {
  const address = env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT ?? env.OTEL_EXPORTER_OTLP_ENDPOINT;
  const exporter = env.OTEL_TRACES_EXPORTER ?? (address === undefined ? 'none' : 'otlp');
  if (exporter === 'none' || env.OTEL_SDK_DISABLED === 'true') return null;
  const given = env.OTEL_RESOURCE_ATTRIBUTES.split(',').flatMap((pair) => {
    const [, key, value] = /^\s*([^=\s]+)\s*=\s*(.*?)\s*$/.exec(pair) ?? [];
    return key === undefined || value === undefined ? [] : [[key, unescaped(value)] as const];
  });
  const name = env.OTEL_SERVICE_NAME;
  return { ...Object.fromEntries(given), ...optional({ 'service.name': name }) };
}

function unescaped(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    throw new StartError(
      'OTEL_RESOURCE_ATTRIBUTES has a value that is not percent-encoded; correct it and start again',
    );
  }
}

/** Better a refusal at the start than bytes stored elsewhere than the operator believes. */
function s3Of(env: z.infer<typeof schema>, present: readonly string[]): S3Options | null {
  const { S3_BUCKET: bucket, S3_ACCESS_KEY_ID: accessKeyId, S3_SECRET_ACCESS_KEY: secretAccessKey } = env;
  if (bucket === undefined) {
    const name = present.find((variable) => variable.startsWith('S3_'));
    if (name === undefined) return null;
    throw new StartError(`${name} is set without S3_BUCKET; name the bucket, or unset the S3_ variables`);
  }
  if ((accessKeyId === undefined) !== (secretAccessKey === undefined)) {
    throw new StartError('S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY belong together; set both or none');
  }
  const credentials =
    accessKeyId === undefined || secretAccessKey === undefined ? undefined : { accessKeyId, secretAccessKey };
  const endpoint = env.S3_ENDPOINT;
  // Self-hosted servers rarely have a name for each bucket; AWS wants one.
  const pathStyle = (env.S3_ADDRESSING ?? (endpoint === undefined ? 'virtual' : 'path')) === 'path';
  const bufferBytesMax = env.AGENT_HOST_UPLOAD_BUFFER_MIB * 1_048_576;
  return { endpoint, bucket, region: env.S3_REGION, credentials, pathStyle, bufferBytesMax };
}
