-- Vaults, and who changed and used what is in them. What a credential is made of is in the log only: its secrets are nowhere
-- but in the secret store.
create schema vaults;

create table vaults.checkpoint (like tenants.checkpoint including all);
create table vaults.parked (like tenants.parked including all);
create table vaults.vault (
  tenant text not null,
  id text not null,
  subject text not null,
  created_at text not null,
  removed int not null,
  applied bigint not null,
  doc jsonb not null,
  primary key (tenant, id)
);
create index vault_by_creation on vaults.vault (tenant, created_at desc, id desc) where removed = 0;
create index vault_by_subject on vaults.vault (tenant, subject, created_at desc, id desc) where removed = 0;

-- The part of the audit trail that is about vaults, newest first by key read backwards.
create table vaults.audit (
  tenant text not null,
  at text not null,
  shard int not null,
  position bigint not null,
  index int not null,
  vault_id text not null,
  doc jsonb not null,
  primary key (tenant, at, shard, position, index)
);

insert into public.read_model (schema) values ('vaults');
