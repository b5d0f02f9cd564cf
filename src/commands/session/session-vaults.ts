import { reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import type { VaultEvent } from '../../domain/vault/events.ts';
import type { VaultState } from '../../domain/vault/state.ts';
import { vaultRef } from '../vault/vaults.ts';
import type { Repository } from '../repository.ts';

interface NamedVaults {
  readonly tenant: string;
  readonly vaultIds: readonly string[];
  /** Whose session it is; null: none's, and it may take any vault of the tenant. */
  readonly subject: string | null;
  /** The person that the request acts for: another person's vault is treated as if it did not exist. */
  readonly actsFor: string | null;
}

/** Why a session may not have one of the vaults that a request names for it; null: it may have them all. */
export async function refuseVaults(
  vaults: Repository<VaultState, VaultEvent>,
  { tenant, vaultIds, subject, actsFor }: NamedVaults,
): Promise<Rejection | null> {
  const read = async (id: string): Promise<VaultState> => (await vaults.refresh(vaultRef(tenant, id))).state;
  const found = await Promise.all(vaultIds.map(read));
  for (const [at, vault] of found.entries()) {
    if (vault.status !== 'open' || (actsFor !== null && vault.subject !== actsFor)) {
      return reject('not_found', 'No such vault.');
    }
    if (subject !== null && vault.subject !== subject) {
      const message = 'is the vault of another person than the one whose session it is';
      return reject('invalid_request', `A vault ${message}.`, {
        details: { issues: [{ path: `vaultIds.${at}`, message }] },
      });
    }
  }
  return null;
}
