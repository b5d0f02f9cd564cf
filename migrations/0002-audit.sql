-- Sessions with a turn, for the counts of Admin and tenant status: few at any time.
create index session_not_idle on sessions.session (tenant) where status <> 'idle';

-- The audit trail of each tenant: who changed what, newest first by key.
create table tenants.audit (
  tenant text not null,
  position bigint not null,
  index int not null,
  doc jsonb not null,
  primary key (tenant, position, index)
);
