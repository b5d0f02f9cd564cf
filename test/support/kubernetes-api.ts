import { createServer } from 'node:https';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { KubernetesCluster } from './kubernetes-cluster.ts';
import type { ClusterOptions } from './kubernetes-cluster.ts';
import { ExecServer } from './kubernetes-exec.ts';
import { isRecord, KubernetesStore, Refusal } from './kubernetes-store.ts';
import type { Change, StoredObject } from './kubernetes-store.ts';
import { testCertificate } from './test-certificate.ts';

/** Resources that the server knows, and where. */
const KINDS = {
  sandboxes: { group: 'agents.x-k8s.io', version: 'v1beta1', kind: 'Sandbox', singular: 'sandbox' },
  pods: { group: '', version: 'v1', kind: 'Pod', singular: 'pod' },
  persistentvolumeclaims: {
    group: '',
    version: 'v1',
    kind: 'PersistentVolumeClaim',
    singular: 'persistentvolumeclaim',
  },
  networkpolicies: { group: 'networking.k8s.io', version: 'v1', kind: 'NetworkPolicy', singular: 'networkpolicy' },
} as const;
const VERBS = ['create', 'delete', 'get', 'list', 'patch', 'update', 'watch'];
export const NAMESPACE = 'sandboxes';
export const TOKEN = 'token-of-the-service-account';

interface Wanted {
  readonly resource: string;
  readonly name: string | undefined;
  readonly subresource: string | undefined;
}

/** Refuses the next requests of a kind. */
export interface Fault {
  readonly method: string;
  /** Part of the path with its query. */
  readonly path: string;
  times: number;
  readonly refusal: Refusal;
}

/**
 * An API server of Kubernetes for tests: real HTTPS, with discovery, versions, watches and exec, for the four resources
 * of pods, in one namespace. Behind it are a controller of Agent Sandbox and a kubelet (KubernetesCluster). The official
 * clients work with it, so that ours is tested against the protocol and not against our idea of it.
 */
export class KubernetesTestServer implements AsyncDisposable {
  readonly store = new KubernetesStore();
  readonly cluster: KubernetesCluster;
  readonly execs: ExecServer;
  readonly ca: string;
  readonly faults: Fault[] = [];
  /** Each request as `GET path`, in their order. */
  readonly requests: string[] = [];
  readonly #server: ReturnType<typeof createServer>;
  readonly #watches = new Set<ServerResponse>();
  /** Once it has listened, its own. */
  #port = 0;

  private constructor(options: Partial<ClusterOptions>) {
    const { cert, key } = testCertificate();
    this.ca = cert;
    this.cluster = new KubernetesCluster(this.store, options);
    this.execs = new ExecServer(this.cluster);
    this.#server = createServer({ cert, key }, (request, response) => void this.#serve(request, response));
    this.#server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      try {
        const { url, wanted } = this.#read(request);
        if (wanted?.subresource !== 'exec') throw new Refusal(404, 'NotFound');
        this.execs.accept({ request, socket, head, url, pod: this.store.demand('pods', wanted.name ?? '') });
      } catch (error) {
        const { code } = refusalOf(error);
        socket.end(`HTTP/1.1 ${code} Refused\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`);
      }
    });
  }

  static async open(options: Partial<ClusterOptions> = {}): Promise<KubernetesTestServer> {
    const server = new KubernetesTestServer(options);
    await server.comeBack();
    return server;
  }

  get url(): string {
    return `https://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Refuses the next requests of this kind. */
  refuse(method: string, path: string, refusal: Refusal, times = 1): void {
    this.faults.push({ method, path, times, refusal });
  }

  get watching(): number {
    return this.#watches.size;
  }

  cutWatches(): void {
    for (const response of this.#watches) response.destroy();
  }

  /** As if its process had been killed: what is under way is cut, and nothing listens. What it knows is kept, as by etcd. */
  async goAway(): Promise<void> {
    if (!this.#server.listening) return;
    this.#port = Number(new URL(this.url).port);
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.cutWatches();
    this.execs.cut();
    this.#server.closeAllConnections();
    await closed;
  }

  /** At the same address. */
  async comeBack(): Promise<void> {
    if (this.#server.listening) return;
    await new Promise<void>((resolve) => this.#server.listen(this.#port, '127.0.0.1', resolve));
  }

  /** A configuration for `kubectl`. */
  get kubeconfig(): string {
    return JSON.stringify({
      ...{ apiVersion: 'v1', kind: 'Config', 'current-context': 'test' },
      clusters: [
        {
          name: 'test',
          cluster: { server: this.url, 'certificate-authority-data': Buffer.from(this.ca).toString('base64') },
        },
      ],
      users: [{ name: 'test', user: { token: TOKEN } }],
      contexts: [{ name: 'test', context: { cluster: 'test', user: 'test', namespace: NAMESPACE } }],
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.goAway();
    await this.cluster.stop();
  }

  #read(request: IncomingMessage): { readonly url: URL; readonly wanted: Wanted | null } {
    const url = new URL(request.url ?? '/', this.url);
    const line = `${request.method} ${url.pathname}${url.search}`;
    this.requests.push(line);
    if (request.headers.authorization !== `Bearer ${TOKEN}`) throw new Refusal(401, 'Unauthorized');
    const fault = this.faults.find(
      ({ method, path, times }) => times > 0 && method === request.method && line.includes(path),
    );
    if (fault !== undefined) {
      fault.times -= 1;
      throw fault.refusal;
    }
    return { url, wanted: wantedOf(url.pathname) };
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      const { url, wanted } = this.#read(request);
      if (wanted === null) return send(response, 200, discovery(url.pathname));
      if (url.searchParams.get('watch') === 'true' || url.searchParams.get('watch') === '1') {
        this.#watch(response, wanted, url);
        return;
      }
      const body = await bodyOf(request);
      const isMade = request.method === 'POST';
      send(response, isMade ? 201 : 200, this.#answer(request, { wanted, url, body }));
    } catch (error) {
      const refusal = refusalOf(error);
      const { code, reason, message, headers } = refusal;
      const status = { kind: 'Status', apiVersion: 'v1', status: 'Failure', metadata: {}, message, reason, code };
      send(response, code, status, headers);
    }
  }

  #answer(
    { method = '', headers }: IncomingMessage,
    { wanted: { resource, name }, url, body }: { readonly wanted: Wanted; readonly url: URL; readonly body: unknown },
  ): unknown {
    const { store } = this;
    if (name === undefined) {
      if (method === 'GET') return this.#list(resource, url.searchParams);
      if (method === 'POST' && isRecord(body)) return store.create(resource, body, NAMESPACE);
      throw new Refusal(405, 'MethodNotAllowed');
    }
    switch (method) {
      case 'GET':
        return store.demand(resource, name);
      case 'PUT':
        return store.replace(resource, body as StoredObject);
      case 'PATCH':
        if (headers['content-type'] !== 'application/merge-patch+json') throw new Refusal(415, 'UnsupportedMediaType');
        return store.patch(resource, name, body);
      case 'DELETE':
        return store.remove(resource, name, isRecord(body) ? body : {});
      default:
        throw new Refusal(405, 'MethodNotAllowed');
    }
  }

  #list(resource: string, query: URLSearchParams) {
    const limit = Number(query.get('limit') ?? '0') || Number.POSITIVE_INFINITY;
    const [version, from] = (query.get('continue') ?? `${this.store.version}:0`).split(':').map(Number);
    this.store.since(resource, version ?? 0);
    const all = this.store.all(resource).filter((object) => isSelected(object, query));
    const items = all.slice(from, (from ?? 0) + limit);
    const end = (from ?? 0) + items.length;
    const next = end < all.length ? { continue: `${version}:${end}`, remainingItemCount: all.length - end } : {};
    const { apiVersion, kind } = typeOf(resource);
    return { apiVersion, kind: `${kind}List`, metadata: { resourceVersion: String(version), ...next }, items };
  }

  #watch(response: ServerResponse, { resource }: Wanted, url: URL): void {
    const write = ({ type, object }: { readonly type: string; readonly object: unknown }): void => {
      response.write(`${JSON.stringify({ type, object })}\n`);
    };
    response.writeHead(200, { 'content-type': 'application/json', 'transfer-encoding': 'chunked' });
    response.flushHeaders();
    const show = (change: Change): void => {
      if (change.resource === resource && isSelected(change.object, url.searchParams)) write(change);
    };
    try {
      const after = Number(url.searchParams.get('resourceVersion') ?? '0') || this.store.version;
      for (const change of this.store.since(resource, after)) show(change);
    } catch (error) {
      // As the real one does: the answer has begun, so the refusal is an event.
      const { code, reason, message } = refusalOf(error);
      write({ type: 'ERROR', object: { kind: 'Status', apiVersion: 'v1', status: 'Failure', message, reason, code } });
      return void response.end();
    }
    const off = this.store.onChange(show);
    this.#watches.add(response);
    response.on('close', () => {
      off();
      this.#watches.delete(response);
    });
  }
}

/** The object that a path names; null: it is one of discovery. */
function wantedOf(path: string): Wanted | null {
  const [, group = '', version = '', , resource = '', name, subresource] =
    /^\/(?:api|apis\/([^/]+))\/([^/]+)\/namespaces\/([^/]+)\/([^/]+)(?:\/([^/]+))?(?:\/([^/]+))?$/.exec(path) ?? [];
  if (resource === '') return null;
  const known = Object.entries(KINDS).find(([plural]) => plural === resource)?.[1];
  if (known === undefined || known.group !== group || known.version !== version)
    throw new Refusal(404, 'NotFound', { message: 'the server could not find the requested resource' });
  return { resource, name, subresource };
}

function typeOf(resource: string): { readonly apiVersion: string; readonly kind: string } {
  const found = Object.entries(KINDS).find(([plural]) => plural === resource)?.[1];
  if (found === undefined) throw new Refusal(404, 'NotFound');
  const { group, version, kind } = found;
  return { apiVersion: group === '' ? version : `${group}/${version}`, kind };
}

function isSelected({ metadata }: StoredObject, query: URLSearchParams): boolean {
  const labels = (query.get('labelSelector') ?? '').split(',').filter(Boolean);
  const fields = (query.get('fieldSelector') ?? '').split(',').filter(Boolean);
  return (
    labels.every((pair) => {
      const [key = '', value] = pair.split('=');
      return value === undefined ? metadata.labels?.[key] !== undefined : metadata.labels?.[key] === value;
    }) && fields.every((pair) => pair === `metadata.name=${metadata.name}`)
  );
}

/** What clients ask first: which groups, versions and resources there are. */
function discovery(path: string): unknown {
  const groups = [...new Set(Object.values(KINDS).map(({ group }) => group))].filter(Boolean);
  const versionOf = (group: string): string => Object.values(KINDS).find((one) => one.group === group)?.version ?? '';
  const resources = (group: string) =>
    Object.entries(KINDS)
      .filter(([, one]) => one.group === group)
      .map(([name, { kind, singular: singularName }]) => ({
        name,
        singularName,
        namespaced: true,
        kind,
        verbs: VERBS,
      }));
  if (path === '/version') return { major: '1', minor: '34', gitVersion: 'v1.34.0', platform: 'linux/amd64' };
  if (path === '/api') return { kind: 'APIVersions', versions: ['v1'], serverAddressByClientCIDRs: [] };
  if (path === '/apis') {
    const listed = groups.map((name) => {
      const version = { groupVersion: `${name}/${versionOf(name)}`, version: versionOf(name) };
      return { name, versions: [version], preferredVersion: version };
    });
    return { kind: 'APIGroupList', apiVersion: 'v1', groups: listed };
  }
  if (path === '/api/v1')
    return { kind: 'APIResourceList', apiVersion: 'v1', groupVersion: 'v1', resources: resources('') };
  const group = groups.find((name) => path === `/apis/${name}/${versionOf(name)}`);
  if (group === undefined) throw new Refusal(404, 'NotFound', { message: `${path} not found` });
  const groupVersion = `${group}/${versionOf(group)}`;
  return { kind: 'APIResourceList', apiVersion: 'v1', groupVersion, resources: resources(group) };
}

function send(response: ServerResponse, code: number, body: unknown, headers: Readonly<Record<string, string>> = {}) {
  response.writeHead(code, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body));
}

async function bodyOf(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const text = Buffer.concat(chunks).toString('utf8');
  return text === '' ? null : (JSON.parse(text) as unknown);
}

function refusalOf(error: unknown): Refusal {
  return error instanceof Refusal ? error : new Refusal(500, 'InternalError', { message: String(error) });
}
