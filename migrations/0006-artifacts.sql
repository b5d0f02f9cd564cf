-- Artifacts, the names of their objects, and the account of each tenant's stored bytes. An artifact that was removed stays
-- as a row: its objects are no longer named by anything.
create schema artifacts;

create table artifacts.checkpoint (like tenants.checkpoint including all);
create table artifacts.parked (like tenants.parked including all);
create table artifacts.artifact (
  tenant text not null,
  id text not null,
  session_id text,
  session_position bigint,
  subject text,
  agent_id text,
  created_at text not null,
  removed int not null,
  applied bigint not null,
  doc jsonb not null,
  primary key (tenant, id)
);
create index artifact_by_creation on artifacts.artifact (tenant, created_at, id) where removed = 0;
create index artifact_by_session on artifacts.artifact (tenant, session_id, created_at, id) where removed = 0;
create index artifact_by_subject on artifacts.artifact (tenant, subject, created_at, id) where removed = 0 and subject is not null;

-- Objects of the store that a version names.
create table artifacts.object (
  tenant text not null,
  owner text not null,
  name text not null,
  position bigint not null,
  primary key (tenant, owner, name)
);

-- `due_at`: when the first operation that is under way is overdue.
create table artifacts.account (
  tenant text not null,
  id text not null,
  due_at text,
  applied bigint not null,
  doc jsonb not null,
  primary key (tenant, id)
);
create index account_by_due on artifacts.account (due_at) where due_at is not null;
