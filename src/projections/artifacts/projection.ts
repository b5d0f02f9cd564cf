import type { ArtifactEvent } from '../../domain/artifact/events.ts';
import type { QuotaEvent } from '../../domain/quota/events.ts';
import { eventsOf } from '../../streams/commit.ts';
import type { StoredCommit } from '../../streams/commit.ts';
import { DocumentBatch, upsert } from '../documents.ts';
import type { DocumentTable } from '../documents.ts';
import type { ProjectionGroup, ProjectionTarget } from '../projection.ts';
import { SCHEMAS } from '../schemas.ts';
import { subjectText } from '../sessions/digests.ts';
import { dueAt, evolveAccountView, evolveArtifactView, namedObjects } from './views.ts';
import type { AccountView, ArtifactView } from './views.ts';

const artifactTable: DocumentTable<ArtifactView> = {
  name: 'artifact',
  keyColumns: ['tenant', 'id'],
  columns: {
    session_id: 'text',
    session_position: 'bigint',
    subject: 'text',
    agent_id: 'text',
    created_at: 'text',
    removed: 'int',
  },
  columnsOf: ({ owner, createdAt, removed }, digest) => ({
    session_id: owner?.sessionId ?? null,
    session_position: owner?.sessionPosition ?? null,
    subject: owner?.subject == null ? null : digest(subjectText(owner.subject)),
    agent_id: owner?.agentId ?? null,
    created_at: createdAt,
    removed: removed ? 1 : 0,
  }),
};

const accountTable: DocumentTable<AccountView> = {
  name: 'account',
  keyColumns: ['tenant', 'id'],
  columns: { due_at: 'text' },
  columnsOf: (view) => ({ due_at: dueAt(view) }),
};

/** Artifacts, the names of their objects, and the accounts of stored bytes. */
export const artifactsProjection: ProjectionGroup = {
  name: 'artifacts',
  schema: SCHEMAS.artifacts,
  kinds: ['artifact', 'quota'],
  tables: ['artifact', 'object', 'account'],
  rowsOf: {
    artifact: [
      ['artifact', 'id'],
      ['object', 'owner'],
    ],
    quota: [['account', 'id']],
  },
  apply: async (transaction, target, commits) => {
    const batch = new ArtifactBatch(target);
    for (const commit of commits) batch.want(commit);
    await batch.artifacts.load(transaction);
    await batch.accounts.load(transaction);
    for (const commit of commits) batch.apply(commit);
    await batch.artifacts.save(transaction);
    await batch.accounts.save(transaction);
    const key = ['tenant', 'owner', 'name'];
    const columns = { tenant: 'text', owner: 'text', name: 'text', position: 'bigint' };
    await upsert(transaction, { table: [target.schema, 'object'], key, columns, rows: [...batch.objects.values()] });
  },
};

class ArtifactBatch {
  readonly artifacts: DocumentBatch<ArtifactView>;
  readonly accounts: DocumentBatch<AccountView>;
  readonly objects = new Map<string, object>();

  constructor(target: ProjectionTarget) {
    this.artifacts = new DocumentBatch(artifactTable, target);
    this.accounts = new DocumentBatch(accountTable, target);
  }

  want({ ref: { tenant, kind, id } }: StoredCommit): void {
    if (kind === 'artifact') this.artifacts.want({ tenant, id });
    else this.accounts.want({ tenant, id });
  }

  apply(stored: StoredCommit): void {
    if (stored.ref.kind === 'artifact') this.#applyArtifact(stored);
    else this.#applyAccount(stored);
  }

  #applyArtifact({ ref: { tenant, id }, commit, position }: StoredCommit): void {
    for (const event of eventsOf<ArtifactEvent>(commit)) {
      this.artifacts.evolve({ tenant, id }, position, (view) => evolveArtifactView(view, event, commit.at));
      for (const name of namedObjects(event)) {
        this.objects.set(`${tenant}/${id}/${name}`, { tenant, owner: id, name, position });
      }
    }
  }

  #applyAccount({ ref: { tenant, id }, commit, position }: StoredCommit): void {
    for (const [index, event] of eventsOf<QuotaEvent>(commit).entries()) {
      const meta = { at: commit.at, position, index };
      this.accounts.evolve({ tenant, id }, position, (view) => evolveAccountView(view, event, meta));
    }
  }
}
