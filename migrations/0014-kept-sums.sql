-- Counts and sums that are kept with the rows, so that what a read costs does not depend on how much a tenant has. Both
-- schemas are filled from the log beside the ones before them.

create schema agents_3;
create table agents_3.checkpoint (like tenants.checkpoint including all);
create table agents_3.parked (like tenants.parked including all);
create table agents_3.agent (
  tenant text not null,
  id text not null,
  archived boolean not null,
  applied bigint not null,
  doc bytea not null,
  primary key (tenant, id)
);
create table agents_3.agent_version (
  tenant text not null,
  agent_id text not null,
  version int not null,
  doc bytea not null,
  primary key (tenant, agent_id, version)
);
create table agents_3.tally (
  tenant text not null,
  shard int not null,
  agents bigint not null,
  primary key (tenant, shard)
);

create schema sessions_3;
create table sessions_3.checkpoint (like tenants.checkpoint including all);
create table sessions_3.parked (like tenants.parked including all);
-- Sessions that were deleted with more rows than one transaction removes: what is left of them goes in steps.
create table sessions_3.removal (
  tenant text not null,
  session_id text not null,
  shard int not null,
  position bigint not null,
  primary key (tenant, session_id)
);
create index removal_by_shard on sessions_3.removal (shard, tenant, session_id);
create table sessions_3.session (
  tenant text not null,
  id text not null,
  agent_id text not null,
  subject text,
  status text not null,
  labels text[] not null,
  created_at text not null,
  created_position bigint not null,
  updated_at text not null,
  applied bigint not null,
  doc bytea not null,
  primary key (tenant, id)
);
create index session_by_creation on sessions_3.session (tenant, created_at desc, id desc);
create index session_by_agent on sessions_3.session (tenant, agent_id, created_at desc, id desc);
create index session_by_subject on sessions_3.session (tenant, subject, created_at desc, id desc) where subject is not null;
-- The digest of a label is one tenant's.
create index session_by_label on sessions_3.session using gin (labels);
create index session_not_idle on sessions_3.session (tenant, id) where status <> 'idle';

-- The canonical history: a row is a commit with records of it, as the log holds it.
create table sessions_3.history (
  tenant text not null,
  session_id text not null,
  position bigint not null,
  shard int not null,
  records int not null,
  commit bytea not null,
  primary key (tenant, session_id, position)
);
-- Commits with records of an agent used as a tool, by the digests of its delegation and of its path.
create table sessions_3.history_agent (
  tenant text not null,
  session_id text not null,
  agent text not null,
  position bigint not null,
  primary key (tenant, session_id, agent, position)
);
-- A fork lists the artifacts of the sessions that its history begins in.
create table sessions_3.history_artifact (
  tenant text not null,
  session_id text not null,
  position bigint not null,
  index int not null,
  artifact_id text not null,
  primary key (tenant, session_id, position, index)
);

create table sessions_3.turn (
  tenant text not null,
  session_id text not null,
  id text not null,
  applied bigint not null,
  doc bytea not null,
  primary key (tenant, session_id, id)
);
create table sessions_3.model_call (
  tenant text not null,
  session_id text not null,
  id text not null,
  turn_id text not null,
  position bigint not null,
  index int not null,
  agent_id text not null,
  model text not null,
  at text not null,
  outcome text not null,
  input_tokens bigint not null,
  output_tokens bigint not null,
  total_tokens bigint not null,
  cached_tokens bigint not null,
  cache_write_tokens bigint not null,
  reasoning_tokens bigint not null,
  cost_usd numeric not null,
  duplicate boolean not null,
  tokens_reported boolean not null,
  cost_known boolean not null,
  applied bigint not null,
  doc bytea not null,
  primary key (tenant, session_id, id)
);
create index model_call_in_order on sessions_3.model_call (tenant, session_id, position, index);
create index model_call_by_time on sessions_3.model_call (tenant, at);
-- Budgets that begin count the calls that are under way.
create index model_call_pending on sessions_3.model_call (tenant, at) where outcome = 'pending';

create table sessions_3.action (
  tenant text not null,
  session_id text not null,
  id text not null,
  agent_id text not null,
  status text not null,
  generation int not null,
  created_at text not null,
  applied bigint not null,
  doc bytea not null,
  primary key (tenant, session_id, id)
);
create index action_by_id on sessions_3.action (tenant, id);
create index action_pending on sessions_3.action (tenant, agent_id, created_at, id) where status = 'pending';
create index action_open on sessions_3.action (tenant, session_id, id)
  where status in ('pending', 'claimed', 'asked', 'uncertain');
create table sessions_3.interaction (
  tenant text not null,
  session_id text not null,
  id text not null,
  agent_id text not null,
  session_agent text not null,
  subject text,
  status text not null,
  of_budget boolean not null,
  created_at text not null,
  applied bigint not null,
  doc bytea not null,
  primary key (tenant, session_id, id)
);
create index interaction_open on sessions_3.interaction (tenant, created_at, id) where status = 'open';
create index interaction_open_by_agent on sessions_3.interaction (tenant, agent_id, created_at, id) where status = 'open';
create index interaction_open_by_subject on sessions_3.interaction (tenant, subject, created_at, id)
  where status = 'open' and subject is not null;

-- What ended calls used, kept as sums: of all of a tenant's (`all`, key ''), of an `agent`, of a `model`, of a `session`; in a day
-- (2026-01-31), an hour (2026-01-31T10), a minute (2026-01-31T10:05; none of sessions), and of all and of an agent at any time ('').
-- Each stream's projector has rows of its own, so that no two wait for each other. A failed call that reported nothing counts
-- as a call; what it is thought to have used is in `silent_tokens` and `silent_usd`, which budgets count.
create table sessions_3.usage (
  tenant text collate "C" not null,
  grouped_by text collate "C" not null,
  bucket text collate "C" not null,
  group_key text collate "C" not null,
  shard int not null,
  calls bigint not null,
  used bigint not null,
  duplicates bigint not null,
  unreported bigint not null,
  unpriced bigint not null,
  input_tokens bigint not null,
  output_tokens bigint not null,
  total_tokens bigint not null,
  cached_tokens bigint not null,
  cache_write_tokens bigint not null,
  reasoning_tokens bigint not null,
  silent_tokens bigint not null,
  cost_usd numeric not null,
  silent_usd numeric not null,
  primary key (tenant, grouped_by, bucket, group_key, shard)
);
-- How many sessions a tenant has, how many of them have a turn, and how many actions wait for an executor.
create table sessions_3.tally (
  tenant text not null,
  shard int not null,
  sessions bigint not null,
  active bigint not null,
  pending bigint not null,
  primary key (tenant, shard)
);

insert into public.read_model (schema) values ('agents_3'), ('sessions_3');
