import type { PlacedAuditEntry, TenantQueries } from '../projections/tenants/queries.ts';
import type { PlacedVaultEntry, VaultAuditPlace, VaultQueries } from '../projections/vaults/queries.ts';
import { ListRequest, foreignCursor } from './list-request.ts';
import type { ListQuery } from './list-request.ts';

export interface TrailDeps {
  /** Of the tenant itself. */
  readonly own: Pick<TenantQueries, 'audit'>;
  /** Of its vaults. */
  readonly vaults: Pick<VaultQueries, 'audit'>;
}

type AuditEntry = PlacedAuditEntry['entry'];

interface Place {
  readonly own: Pick<PlacedAuditEntry, 'position' | 'index'> | null;
  readonly vault: VaultAuditPlace | null;
}

/** An entry, and how far each of the two trails has been read once it has been shown. */
interface Merged {
  readonly entry: AuditEntry;
  readonly place: Place;
}

/**
 * A page of the audit trail, newest first. It is two trails, of the tenant and of its vaults, which are in streams of their
 * own; the cursor says how far each has been read, so that none is skipped whatever the clocks of the nodes say.
 */
export async function auditPage(
  { own, vaults }: TrailDeps,
  tenantId: string,
  query: ListQuery,
): Promise<{ entries: AuditEntry[]; nextCursor: string | null }> {
  const list = new ListRequest(`GET /v1/tenant/audit ${tenantId}`, query, 6);
  const place = placeOf(list.after);
  const [ofTenant, ofVaults] = await Promise.all([
    own.audit(tenantId, { limit: list.wanted, after: place.own }),
    vaults.audit(tenantId, { limit: list.wanted, before: place.vault }),
  ]);
  const merged = merge(ofTenant, ofVaults, place).slice(0, list.wanted);
  const page = list.page(merged, (one) => keyOf(one.place));
  return { entries: page.entries.map(({ entry }) => entry), nextCursor: page.nextCursor };
}

function merge(own: readonly PlacedAuditEntry[], vaults: readonly PlacedVaultEntry[], start: Place): Merged[] {
  const merged: Merged[] = [];
  for (let [place, i, j] = [start, 0, 0]; ;) {
    const [first, second] = [own[i], vaults[j]];
    if (first !== undefined && (second === undefined || first.entry.at >= second.entry.at)) {
      const { position, index } = first;
      [place, i] = [{ ...place, own: { position, index } }, i + 1];
      merged.push({ entry: first.entry, place });
    } else if (second !== undefined) {
      [place, j] = [{ ...place, vault: second.place }, j + 1];
      merged.push({ entry: second.entry, place });
    } else return merged;
  }
}

function keyOf({ own, vault }: Place): readonly string[] {
  const first = own === null ? ['', ''] : [String(own.position), String(own.index)];
  const { at, shard, position, index } = vault ?? { at: '', shard: '', position: '', index: '' };
  return [...first, at, String(shard), String(position), String(index)];
}

/** @throws ProblemError cursor_invalid */
function placeOf(after: readonly string[] | null): Place {
  const [position = '', index = '', at = '', shard = '', ofVault = '', vaultIndex = ''] = after ?? [];
  const own = position === '' ? null : { position: numberIn(position), index: smallNumberIn(index) };
  if (at === '') return { own, vault: null };
  const of = { shard: smallNumberIn(shard), position: numberIn(ofVault), index: smallNumberIn(vaultIndex) };
  return { own, vault: { at, ...of } };
}

/** The widest numbers that the columns take: positions have 64 bits, the others 32. */
const INTEGER_MAX = 2_147_483_647;

function numberIn(text: string): number {
  if (!/^\d{1,16}$/.test(text) || !Number.isSafeInteger(Number(text))) throw foreignCursor();
  return Number(text);
}

function smallNumberIn(text: string): number {
  if (numberIn(text) > INTEGER_MAX) throw foreignCursor();
  return Number(text);
}
