-- Read models that hold what tenants wrote sealed with their data keys: the end of a key erases the rows, and a deletion
-- costs what the tenant has. Columns beside a document are what filters, order and sums need: ids, numbers, times, and
-- keyed digests of subjects, labels and agent paths. Each schema is filled from the log beside the one before it.

create schema tenants_2;
create table tenants_2.checkpoint (like tenants.checkpoint including all);
create table tenants_2.parked (like tenants.parked including all);
create table tenants_2.tenant (
  tenant text not null,
  id text not null,
  state text not null,
  created_at text not null,
  applied bigint not null,
  doc bytea not null,
  primary key (tenant, id)
);
create index tenant_by_creation on tenants_2.tenant (created_at desc, id desc);
-- The audit trail, in the order of time and place; which of the tenant's aggregates an entry is of: one of the four.
create table tenants_2.audit (
  tenant text not null,
  at text not null,
  place text not null,
  tenant_id text,
  agent_id text,
  account_id text,
  vault_id text,
  doc bytea not null,
  primary key (tenant, at, place)
);
create index audit_by_agent on tenants_2.audit (tenant, agent_id) where agent_id is not null;
create index audit_by_vault on tenants_2.audit (tenant, vault_id) where vault_id is not null;

create schema agents_2;
create table agents_2.checkpoint (like tenants.checkpoint including all);
create table agents_2.parked (like tenants.parked including all);
create table agents_2.agent (
  tenant text not null,
  id text not null,
  archived boolean not null,
  applied bigint not null,
  doc bytea not null,
  primary key (tenant, id)
);
create table agents_2.agent_version (
  tenant text not null,
  agent_id text not null,
  version int not null,
  doc bytea not null,
  primary key (tenant, agent_id, version)
);

create schema sessions_2;
create table sessions_2.checkpoint (like tenants.checkpoint including all);
create table sessions_2.parked (like tenants.parked including all);
create table sessions_2.session (
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
create index session_by_creation on sessions_2.session (tenant, created_at desc, id desc);
create index session_by_agent on sessions_2.session (tenant, agent_id, created_at desc, id desc);
create index session_by_subject on sessions_2.session (tenant, subject, created_at desc, id desc) where subject is not null;
-- The digest of a label is one tenant's.
create index session_by_label on sessions_2.session using gin (labels);
create index session_not_idle on sessions_2.session (tenant, id) where status <> 'idle';

-- The canonical history: a row is a commit with records of it, as the log holds it.
create table sessions_2.history (
  tenant text not null,
  session_id text not null,
  position bigint not null,
  shard int not null,
  records int not null,
  commit bytea not null,
  primary key (tenant, session_id, position)
);
-- Commits with records of an agent used as a tool, by the digests of its delegation and of its path.
create table sessions_2.history_agent (
  tenant text not null,
  session_id text not null,
  agent text not null,
  position bigint not null,
  primary key (tenant, session_id, agent, position)
);
-- A fork lists the artifacts of the sessions that its history begins in.
create table sessions_2.history_artifact (
  tenant text not null,
  session_id text not null,
  position bigint not null,
  index int not null,
  artifact_id text not null,
  primary key (tenant, session_id, position, index)
);

create table sessions_2.turn (
  tenant text not null,
  session_id text not null,
  id text not null,
  applied bigint not null,
  doc bytea not null,
  primary key (tenant, session_id, id)
);
create table sessions_2.model_call (
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
create index model_call_in_order on sessions_2.model_call (tenant, session_id, position, index);
create index model_call_by_time on sessions_2.model_call (tenant, at);

create table sessions_2.action (
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
create index action_by_id on sessions_2.action (tenant, id);
create index action_pending on sessions_2.action (tenant, agent_id, created_at, id) where status = 'pending';
create index action_open on sessions_2.action (tenant, session_id, id)
  where status in ('pending', 'claimed', 'asked', 'uncertain');
create table sessions_2.interaction (
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
create index interaction_open on sessions_2.interaction (tenant, created_at, id) where status = 'open';
create index interaction_open_by_agent on sessions_2.interaction (tenant, agent_id, created_at, id) where status = 'open';
create index interaction_open_by_subject on sessions_2.interaction (tenant, subject, created_at, id)
  where status = 'open' and subject is not null;

create schema artifacts_2;
create table artifacts_2.checkpoint (like tenants.checkpoint including all);
create table artifacts_2.parked (like tenants.parked including all);
create table artifacts_2.artifact (
  tenant text not null,
  id text not null,
  session_id text,
  session_position bigint,
  subject text,
  agent_id text,
  created_at text not null,
  removed int not null,
  applied bigint not null,
  doc bytea not null,
  primary key (tenant, id)
);
create index artifact_by_creation on artifacts_2.artifact (tenant, created_at, id) where removed = 0;
create index artifact_by_session on artifacts_2.artifact (tenant, session_id, created_at, id) where removed = 0;
create index artifact_by_subject on artifacts_2.artifact (tenant, subject, created_at, id) where removed = 0 and subject is not null;
-- For tokens that reach a few agents of many.
create index artifact_by_agent on artifacts_2.artifact (tenant, agent_id, created_at, id) where removed = 0;
-- Objects of the store that a version names.
create table artifacts_2.object (
  tenant text not null,
  owner text not null,
  name text not null,
  position bigint not null,
  primary key (tenant, owner, name)
);
-- `due_at`: when the first operation that is under way is overdue.
create table artifacts_2.account (
  tenant text not null,
  id text not null,
  due_at text,
  applied bigint not null,
  doc bytea not null,
  primary key (tenant, id)
);
create index account_by_due on artifacts_2.account (due_at) where due_at is not null;

insert into public.read_model (schema) values ('tenants_2'), ('agents_2'), ('sessions_2'), ('artifacts_2');
