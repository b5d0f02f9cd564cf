-- What calls of sandboxes took is kept as sums, with the agent that made them: rows beside those of the schema before, filled from
-- the log.
create schema sandboxes_2;

create table sandboxes_2.checkpoint (like tenants.checkpoint including all);
create table sandboxes_2.parked (like tenants.parked including all);
create table sandboxes_2.sandbox (
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
create index sandbox_by_creation on sandboxes_2.sandbox (tenant, created_at, id) where removed = 0;
create table sandboxes_2.manifest (
  tenant text not null,
  owner text not null,
  name text not null,
  position bigint not null,
  primary key (tenant, name, owner)
);
create table sandboxes_2.workspace_use (
  tenant text not null,
  workspace text not null,
  sandbox_id text not null,
  session_id text not null,
  primary key (tenant, workspace, sandbox_id, session_id)
);

-- A row is a call. `agent_id`: empty where the event does not say it.
create table sandboxes_2.exec (
  tenant text not null,
  sandbox_id text not null,
  position bigint not null,
  session_id text not null,
  turn_id text not null,
  agent_id text not null,
  at text not null,
  duration_ms bigint not null,
  cpu_ms bigint not null,
  bytes_written bigint not null,
  primary key (tenant, sandbox_id, position)
);
create index exec_by_time on sandboxes_2.exec (tenant, at);
create index exec_by_session on sandboxes_2.exec (tenant, session_id, turn_id);

-- Sums of calls: of all of a tenant's (`all`, key ''), of an `agent`, of a `session`; in a day (2026-01-31), an hour (2026-01-31T10) and, but
-- for sessions, a minute (2026-01-31T10:05). Each stream's projector has rows of its own, so that no two wait for each other.
create table sandboxes_2.usage (
  tenant text collate "C" not null,
  grouped_by text collate "C" not null,
  bucket text collate "C" not null,
  group_key text collate "C" not null,
  shard int not null,
  calls bigint not null,
  duration_ms bigint not null,
  cpu_ms bigint not null,
  bytes_written bigint not null,
  primary key (tenant, grouped_by, bucket, group_key, shard)
);

insert into public.read_model (schema) values ('sandboxes_2');
