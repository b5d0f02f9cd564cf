-- Read models. Each projection group has a schema of its own, so that a rebuild can fill a copy of it beside and swap
-- the two by renaming. `checkpoint` says how far the group has read each stream; it changes in the same transaction as
-- the rows. `parked` lists commits that could not be applied and were stepped over with an alarm. `applied` is the position of the newest commit in
-- a document, so that a commit that is applied again changes nothing.

create schema tenants;
create schema agents;
create schema sessions;

create table tenants.checkpoint (shard int primary key, position bigint not null);
create table tenants.parked (shard int, position bigint, subject text not null, error text not null, primary key (shard, position));
create table tenants.tenant (
  tenant text not null,
  id text not null,
  created_at text not null,
  applied bigint not null,
  doc jsonb not null,
  primary key (tenant, id)
);
create index tenant_by_creation on tenants.tenant (created_at desc, id desc);

create table agents.checkpoint (like tenants.checkpoint including all);
create table agents.parked (like tenants.parked including all);
create table agents.agent (
  tenant text not null,
  id text not null,
  applied bigint not null,
  doc jsonb not null,
  primary key (tenant, id)
);
create table agents.agent_version (
  tenant text not null,
  agent_id text not null,
  id text not null,
  version int not null,
  doc jsonb not null,
  primary key (tenant, agent_id, id)
);

create table sessions.checkpoint (like tenants.checkpoint including all);
create table sessions.parked (like tenants.parked including all);
create table sessions.session (
  tenant text not null,
  id text not null,
  agent_id text not null,
  subject text,
  status text not null,
  created_at text not null,
  applied bigint not null,
  doc jsonb not null,
  primary key (tenant, id)
);
create index session_by_creation on sessions.session (tenant, created_at desc, id desc);
create index session_by_agent on sessions.session (tenant, agent_id, created_at desc, id desc);
create index session_by_subject on sessions.session (tenant, subject, created_at desc, id desc) where subject is not null;
create index session_by_label on sessions.session using gin ((doc -> 'labels') jsonb_path_ops);

create table sessions.turn (
  tenant text not null,
  session_id text not null,
  id text not null,
  applied bigint not null,
  doc jsonb not null,
  primary key (tenant, session_id, id)
);
create table sessions.model_call (
  tenant text not null,
  session_id text not null,
  id text not null,
  turn_id text not null,
  position bigint not null,
  index int not null,
  applied bigint not null,
  doc jsonb not null,
  primary key (tenant, session_id, id)
);
create index model_call_in_order on sessions.model_call (tenant, session_id, position, index);

-- The canonical history. `payload` is the text that goes over the wire, byte for byte.
create table sessions.history (
  tenant text not null,
  session_id text not null,
  position bigint not null,
  index int not null,
  shard int not null,
  event_id text not null,
  turn_id text,
  type text not null,
  at text not null,
  payload text not null,
  delegation_id text,
  agent_path text,
  primary key (tenant, session_id, position, index)
);
create index history_by_delegation on sessions.history (tenant, session_id, delegation_id, position, index) where delegation_id is not null;
create index history_by_agent_path on sessions.history (tenant, session_id, agent_path, position, index) where agent_path is not null;

create table sessions.receipt (
  tenant text not null,
  session_id text not null,
  id text not null,
  doc jsonb not null,
  primary key (tenant, session_id, id)
);
