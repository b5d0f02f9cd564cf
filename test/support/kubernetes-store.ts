import { randomUUID } from 'node:crypto';

/** An object as the API of Kubernetes shows it. */
export interface StoredObject {
  apiVersion: string;
  kind: string;
  metadata: {
    name: string;
    namespace: string;
    uid: string;
    resourceVersion: string;
    generation: number;
    creationTimestamp: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    deletionTimestamp?: string;
    ownerReferences?: readonly { readonly uid: string }[];
  };
  spec: Record<string, unknown>;
  status?: Record<string, unknown>;
}

export interface Change {
  readonly version: number;
  readonly resource: string;
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
  readonly object: StoredObject;
}

/** How a request is refused, as HTTP and as a Status. */
export class Refusal extends Error {
  readonly code: number;
  readonly reason: string;
  readonly headers: Readonly<Record<string, string>>;

  constructor(code: number, reason: string, { message = reason, headers = {} } = {}) {
    super(message);
    this.code = code;
    this.reason = reason;
    this.headers = headers;
  }
}

interface Removal {
  readonly preconditions?: { readonly uid?: string; readonly resourceVersion?: string };
}

/** The objects of one namespace, with versions and a history for watches: what etcd and the API server's registry do. */
export class KubernetesStore {
  readonly #objects = new Map<string, StoredObject>();
  readonly #listeners = new Set<(change: Change) => void>();
  #history: Change[] = [];
  #version = 1_000;
  /** Changes up to this version are forgotten. */
  #forgotten = 1_000;
  /** Objects of these resources stay, marked as being removed, until `release`. */
  readonly held = new Set<string>();

  get version(): number {
    return this.#version;
  }

  get(resource: string, name: string): StoredObject | undefined {
    return this.#objects.get(`${resource}/${name}`);
  }

  demand(resource: string, name: string): StoredObject {
    const found = this.get(resource, name);
    if (found === undefined) throw new Refusal(404, 'NotFound', { message: `${resource} "${name}" not found` });
    return found;
  }

  all(resource: string): StoredObject[] {
    return [...this.#objects].filter(([key]) => key.startsWith(`${resource}/`)).map(([, object]) => object);
  }

  create(resource: string, body: Partial<StoredObject>, namespace: string): StoredObject {
    const { name } = body.metadata ?? {};
    if (name === undefined || !/^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/.test(name))
      throw new Refusal(422, 'Invalid', { message: 'metadata.name is invalid' });
    if (this.get(resource, name) !== undefined)
      throw new Refusal(409, 'AlreadyExists', { message: `${resource} "${name}" already exists` });
    for (const [key, value] of Object.entries(body.metadata?.labels ?? {})) {
      const isLabel = /^([a-z0-9.-]+\/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/.test(key);
      if (!isLabel || !/^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$/.test(value))
        throw new Refusal(422, 'Invalid', { message: `the label ${key}=${value} is invalid` });
    }
    const metadata = {
      ...body.metadata,
      ...{ name, namespace, uid: randomUUID(), resourceVersion: '', generation: 1 },
      creationTimestamp: new Date().toISOString().replace(/\.\d+/, ''),
    };
    const object = { apiVersion: body.apiVersion ?? 'v1', kind: body.kind ?? '', spec: {}, ...body, metadata };
    return this.#put(resource, 'ADDED', object);
  }

  /** In place of the object, if it still has the version that the new one was made from (when it names one). */
  replace(resource: string, next: StoredObject): StoredObject {
    const before = this.demand(resource, next.metadata.name);
    const { resourceVersion } = next.metadata;
    if (resourceVersion !== '' && resourceVersion !== before.metadata.resourceVersion) {
      const message = `Operation cannot be fulfilled on ${resource} "${next.metadata.name}": the object has been modified`;
      throw new Refusal(409, 'Conflict', { message });
    }
    const isChanged = JSON.stringify(next.spec) !== JSON.stringify(before.spec);
    const generation = before.metadata.generation + (isChanged ? 1 : 0);
    const { uid, creationTimestamp } = before.metadata;
    return this.#put(resource, 'MODIFIED', {
      ...next,
      metadata: { ...next.metadata, generation, uid, creationTimestamp },
    });
  }

  /** A JSON merge patch (RFC 7386). */
  patch(resource: string, name: string, patch: unknown): StoredObject {
    const before = this.demand(resource, name);
    const merged = mergePatch({ ...before, metadata: { ...before.metadata, resourceVersion: '' } }, patch);
    return this.replace(resource, merged as StoredObject);
  }

  /** What the server itself finds out about an object. */
  setStatus(resource: string, name: string, status: Record<string, unknown>): void {
    const before = this.get(resource, name);
    if (before === undefined || JSON.stringify(before.status) === JSON.stringify(status)) return;
    this.#put(resource, 'MODIFIED', { ...before, status });
  }

  remove(resource: string, name: string, { preconditions }: Removal = {}): StoredObject {
    const object = this.demand(resource, name);
    if (preconditions?.uid !== undefined && preconditions.uid !== object.metadata.uid)
      throw new Refusal(409, 'Conflict', { message: 'the UID in the precondition does not match' });
    if (!this.held.has(resource)) return this.release(resource, name);
    if (object.metadata.deletionTimestamp !== undefined) return object;
    const deletionTimestamp = new Date().toISOString();
    return this.#put(resource, 'MODIFIED', { ...object, metadata: { ...object.metadata, deletionTimestamp } });
  }

  /** Removes what was held. */
  release(resource: string, name: string): StoredObject {
    const object = this.demand(resource, name);
    this.#objects.delete(`${resource}/${name}`);
    this.#record(resource, 'DELETED', object);
    return object;
  }

  /** Changes of a resource after a version. */
  since(resource: string, version: number): readonly Change[] {
    if (version < this.#forgotten) throw new Refusal(410, 'Expired', { message: 'too old resource version' });
    return this.#history.filter((change) => change.resource === resource && change.version > version);
  }

  /** As etcd does every five minutes: older changes cannot be had any more. */
  forget(): void {
    this.#version += 1;
    this.#forgotten = this.#version;
    this.#history = [];
  }

  onChange(listener: (change: Change) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #put(resource: string, type: 'ADDED' | 'MODIFIED', object: StoredObject): StoredObject {
    const next = structuredClone(object);
    next.metadata.resourceVersion = String(this.#version + 1);
    this.#objects.set(`${resource}/${next.metadata.name}`, next);
    this.#record(resource, type, next);
    return next;
  }

  #record(resource: string, type: Change['type'], object: StoredObject): void {
    this.#version += 1;
    const seen = { ...object, metadata: { ...object.metadata, resourceVersion: String(this.#version) } };
    const change = { version: this.#version, resource, type, object: seen };
    this.#history.push(change);
    for (const listener of this.#listeners) listener(change);
  }
}

function mergePatch(target: unknown, patch: unknown): unknown {
  if (!isRecord(patch)) return patch;
  const merged: Record<string, unknown> = isRecord(target) ? { ...target } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete merged[key];
    else merged[key] = mergePatch(merged[key], value);
  }
  return merged;
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
