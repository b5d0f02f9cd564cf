import type { VaultEvent } from '../../domain/vault/events.ts';

/** A vault as lists show it, without its contents. */
export interface VaultView {
  readonly id: string;
  readonly name: string;
  readonly subject: string;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly removed: boolean;
  readonly createdAt: string;
  readonly updatedAt: string;
}

export function evolveVaultView(
  view: VaultView | undefined,
  event: VaultEvent,
  { id, at }: { readonly id: string; readonly at: string },
): VaultView | undefined {
  if (event.type === 'vault.created') {
    const { name, subject, metadata } = event.data;
    return { id, name, subject, metadata, removed: false, createdAt: at, updatedAt: at };
  }
  if (view === undefined || event.type === 'credential.used') return view;
  // What a deleted vault was is no longer shown.
  if (event.type === 'vault.deleted') return { ...view, name: '', metadata: {}, removed: true, updatedAt: at };
  return { ...view, updatedAt: at };
}
