-- What executors may take: the actions of all sessions, found by agent and by id.
create table sessions.action (
  tenant text not null,
  session_id text not null,
  id text not null,
  agent_id text not null,
  status text not null,
  created_at text not null,
  applied bigint not null,
  doc jsonb not null,
  primary key (tenant, session_id, id)
);
create index action_by_id on sessions.action (tenant, id);
create index action_pending on sessions.action (tenant, agent_id, created_at, id) where status = 'pending';
