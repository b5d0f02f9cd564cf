-- Sandboxes, which files they have had, and what their calls took. A sandbox that was deleted stays as a row: its files
-- are no longer named by anything.
create schema sandboxes;

create table sandboxes.checkpoint (like tenants.checkpoint including all);
create table sandboxes.parked (like tenants.parked including all);
create table sandboxes.sandbox (
  tenant text not null,
  id text not null,
  state text not null,
  created_at text not null,
  created_position bigint not null,
  removed int not null,
  applied bigint not null,
  doc bytea not null,
  primary key (tenant, id)
);
create index sandbox_by_creation on sandboxes.sandbox (tenant, created_at, id) where removed = 0;

-- Changes of files that a sandbox has recorded: what they wrote into the object store is named by something.
create table sandboxes.manifest (
  tenant text not null,
  owner text not null,
  name text not null,
  position bigint not null,
  primary key (tenant, name, owner)
);

-- `day`: of the call, UTC.
create table sandboxes.exec (
  tenant text not null,
  sandbox_id text not null,
  position text not null,
  session_id text not null,
  turn_id text not null,
  at text not null,
  cpu_ms bigint not null,
  duration_ms bigint not null,
  bytes_written bigint not null,
  primary key (tenant, sandbox_id, position)
);
create index exec_by_time on sandboxes.exec (tenant, at);
create index exec_by_session on sandboxes.exec (tenant, session_id);

insert into public.read_model (schema) values ('sandboxes');
