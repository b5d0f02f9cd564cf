import type { KeyRole } from '../../domain/tenant/state.ts';
import type { DirectoryTenant } from './entries.ts';

/** Whose credential a hash is; an executor's principal is its agent. */
export interface Principal {
  readonly tenantId: string;
  readonly principalId: string;
  readonly role: KeyRole | 'executor';
}

type Credential = Omit<Principal, 'tenantId'> & { readonly hash: string };

/** Whose credentials there are, by their hashes. */
export class PrincipalIndex {
  readonly #principals = new Map<string, readonly Principal[]>();

  /** One for each tenant that has registered the hash. */
  of(hash: string): readonly Principal[] {
    return this.#principals.get(hash) ?? [];
  }

  /** Replaces the credentials of a tenant's previous entry by those of the new one; undefined: there is none. */
  replace(tenantId: string, before: DirectoryTenant | undefined, after: DirectoryTenant | undefined): void {
    for (const { hash } of credentialsOf(before)) this.#set(hash, this.#others(tenantId, hash));
    // A tenant that is being deleted no longer has credentials: they answer as if they had never existed.
    if (after?.state === 'deleting') return;
    for (const { hash, ...principal } of credentialsOf(after)) {
      this.#set(hash, [...this.#others(tenantId, hash), { tenantId, ...principal }]);
    }
  }

  #others(tenantId: string, hash: string): readonly Principal[] {
    return this.of(hash).filter((other) => other.tenantId !== tenantId);
  }

  #set(hash: string, all: readonly Principal[]): void {
    if (all.length === 0) this.#principals.delete(hash);
    else this.#principals.set(hash, all);
  }
}

function credentialsOf(entry: DirectoryTenant | undefined): Credential[] {
  if (entry === undefined) return [];
  const { keys, executors } = entry;
  return [
    ...keys.map(({ id: principalId, role, hash }) => ({ principalId, role, hash })),
    ...executors.map(({ agentId: principalId, hash }) => ({ principalId, role: 'executor' as const, hash })),
  ];
}
