import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { open, sealingKey } from '../lib/sealed-box.ts';
import { createCodec } from './codec.ts';
import type { ProjectedCommit, RowKeys } from './row-seals.ts';
import { RowSeals } from './row-seals.ts';
import { boundTo } from './wrapped-keys.ts';
import { isSealed, SEALED_PREFIX_BYTES, SealBrokenError, TenantErasedError } from './sealed-bytes.ts';

/** Tenants' keys are derived from their names, until they are erased. */
function sealsOf(erased: Set<string>): RowSeals {
  const held = (tenant: string) => {
    if (erased.has(tenant)) return null;
    const bytes = createHash('sha256').update(tenant).digest();
    return { id: bytes.toString('hex', 0, 8), key: sealingKey(bytes) };
  };
  const keys: RowKeys = {
    held,
    obtain: async (tenant) => {
      const key = held(tenant);
      if (key === null) throw new TenantErasedError(tenant);
      return await Promise.resolve(key);
    },
    knows: () => true,
    fetch: async () => await Promise.resolve(),
    open: (tenant, context, sealed) => {
      const own = held(tenant);
      if (own === null) return 'erased';
      const plain = open(own.key, sealed.subarray(SEALED_PREFIX_BYTES), boundTo(tenant, context));
      if (plain === null) throw new SealBrokenError('it does not open');
      return plain;
    },
  };
  return new RowSeals(keys, createCodec({}));
}

const text = Buffer.from('what a tenant wrote');

test('the same text in the same place gives the same bytes, anything else others', async () => {
  const seals = sealsOf(new Set());
  const sealed = seals.seal('a', 'row x', text);
  expect(sealed).not.toBeNull();
  if (sealed === null) return;
  expect(isSealed(sealed)).toBe(true);
  expect(sealed.includes(text)).toBe(false);
  expect(sealsOf(new Set()).seal('a', 'row x', text)).toEqual(sealed);
  const others = [
    seals.seal('b', 'row x', text),
    seals.seal('a', 'row y', text),
    seals.seal('a', 'row x', Buffer.from('W')),
  ];
  const nonces = [sealed, ...others].map((bytes) =>
    bytes?.toString('hex', SEALED_PREFIX_BYTES, SEALED_PREFIX_BYTES + 12),
  );
  expect(new Set(nonces).size).toBe(4);
  expect(await seals.open('a', 'row x', sealed)).toEqual(text);
  await expect(seals.open('a', 'row y', sealed)).rejects.toThrow(SealBrokenError);
  await expect(seals.open('b', 'row x', sealed)).rejects.toThrow(SealBrokenError);
});

test('a digest names a text within its tenant', () => {
  const seals = sealsOf(new Set());
  expect(seals.digest('a', 'ann')).toBe(sealsOf(new Set()).digest('a', 'ann'));
  expect(seals.digest('a', 'ann')).toMatch(/^[\w-]{22}$/);
  expect(new Set([seals.digest('a', 'ann'), seals.digest('b', 'ann'), seals.digest('a', 'bob')]).size).toBe(3);
});

test('of an erased tenant nothing is sealed, opened or named', async () => {
  const erased = new Set<string>();
  const seals = sealsOf(erased);
  const sealed = seals.seal('a', 'row x', text);
  erased.add('a');
  await seals.prepare(['a', 'b']);
  expect(seals.seal('a', 'row x', text)).toBeNull();
  expect(seals.digest('a', 'ann')).toBe('');
  expect(await seals.open('a', 'row x', sealed ?? text)).toBeNull();
});

test('a commit is kept in the bytes that the log has, and sealed where the log has it as it is', async () => {
  const seals = sealsOf(new Set());
  const ref = { tenant: 'a', kind: 'session', id: 's' } as const;
  const meta = {
    v: 1,
    rev: 1,
    commitId: 'co_1',
    at: '2026-01-01T00:00:00.000Z',
    actor: 'admin',
    causation: 'r',
  } as const;
  const commit = { ...meta, events: [{ id: 'ev_1', type: 'x', v: 1, data: { a: 1 } }] };
  const stored: ProjectedCommit = { ref, shard: 0, position: 1, hash: '', commit };
  const plain = createCodec({}).encode(commit);
  const made = seals.sealedCommit({ ...stored, bytes: plain });
  expect(made).not.toBeNull();
  expect(made === null ? null : await seals.openCommit(ref, made)).toEqual(commit);
  expect(seals.sealedCommit(stored)).toEqual(made);
  const asStored = made === null ? plain : Uint8Array.from(made);
  expect(seals.sealedCommit({ ...stored, bytes: asStored })).toBe(asStored);
});
