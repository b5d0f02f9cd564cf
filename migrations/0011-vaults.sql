-- Vaults, sealed with their tenants' data keys; `subject` is a keyed digest. What a credential is made of is in the log only: its secrets are nowhere
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
  doc bytea not null,
  primary key (tenant, id)
);
create index vault_by_creation on vaults.vault (tenant, created_at desc, id desc) where removed = 0;
create index vault_by_subject on vaults.vault (tenant, subject, created_at desc, id desc) where removed = 0;

insert into public.read_model (schema) values ('vaults');
